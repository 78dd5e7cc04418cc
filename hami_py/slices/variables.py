"""HAMi's variables: limits that a cluster sets for a program by names of its own.

The preload library reads them in the program; here they are read by the same rules, so that both
say the same (docs/configuration.md). They bind the innermost slice, or where there is none the
program, and there they may only lower.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hami_py.config import TASK_PRIORITY, UTILIZATION_POLICY, Settings
from hami_py.errors import InvalidValue
from hami_py.model import WHOLE, Mode, Priority, lowest, parse_memory, parse_share

MEMORY = "CUDA_DEVICE_MEMORY_LIMIT"
SHARE = "CUDA_DEVICE_SM_LIMIT"


@dataclass(frozen=True)
class HamiLimit:
    """What the variables say of one card.

    Attributes:
        memory: bytes; None = no limit.
        share: percent of the card's time, 1 to 99; None = no limit.
        mode: how the share holds.
        priority: None = nothing is said.
    """

    memory: int | None = None
    share: int | None = None
    mode: Mode = "hard"
    priority: Priority | None = None


@dataclass(frozen=True)
class Variables:
    """What the variables say; memory in bytes and shares in percent by variable, None = no limit.

    Attributes:
        memory: ``CUDA_DEVICE_MEMORY_LIMIT`` and ``…_<i>``.
        shares: ``CUDA_DEVICE_SM_LIMIT`` and ``…_<i>``, as far as they hold.
        mode: how the shares hold.
        priority: ``CUDA_TASK_PRIORITY``; None = not set.
    """

    memory: Mapping[str, int | None] = field(default_factory=dict)
    shares: Mapping[str, int | None] = field(default_factory=dict)
    mode: Mode = "soft"
    priority: Priority | None = None

    @property
    def set_a_limit(self) -> bool:
        """They do, so that programs are limited also where there is no slice."""
        return lowest([*self.memory.values(), *self.shares.values()]) is not None

    def limit(self, number: int | None) -> HamiLimit:
        """What holds on the card of this number; where that is not known, the lowest of all."""
        memory, share = _of(self.memory, MEMORY, number), _of(self.shares, SHARE, number)
        # Without a share of theirs the mode is no mode of anything.
        mode = "hard" if share is None else self.mode
        return HamiLimit(memory, share, mode, self.priority)


def read_variables(settings: Settings) -> Variables:
    """HAMi's variables of this process.

    Raises:
        InvalidValue: one of them cannot be understood.
    """
    given = settings.hami_limits
    memory = {name: parse_memory(text, "hami-env", name) for name, text in _named(given, MEMORY)}
    shares = {name: _parse_share(text, name) for name, text in _named(given, SHARE)}
    policy = given.get(UTILIZATION_POLICY)
    if policy in ("disable", "DISABLE"):
        shares = {}
    mode: Mode = "hard" if policy in ("force", "FORCE") else "soft"
    return Variables(memory, shares, mode, _parse_priority(given.get(TASK_PRIORITY)))


def _named(given: Mapping[str, str], name: str) -> list[tuple[str, str]]:
    return [(variable, text) for variable, text in given.items() if variable.startswith(name)]


def _of(values: Mapping[str, int | None], name: str, number: int | None) -> int | None:
    if number is None:
        return lowest(values.values())
    return values.get(f"{name}_{number}", values.get(name))


def _parse_share(text: str, name: str) -> int | None:
    """HAMi has two ways to say that there is no limit, 0 and 100."""
    share = parse_share(text, "hami-env", name)
    return None if share == WHOLE else share


def _parse_priority(text: str | None) -> Priority | None:
    """0 is high, 1 normal, as it is where nothing is said; every other number is low."""
    if text is None:
        return None
    digits = text[1:] if text[:1] in {"+", "-"} else text
    if not (digits.isascii() and digits.isdecimal()):
        fix = "write 0 for high, 1 for normal, or another whole number for low"
        raise InvalidValue(TASK_PRIORITY, text, fix)
    number = int(text)
    return "high" if number == 0 else "normal" if number == 1 else "low"
