"""What a person asks for, parsed before any card is known: sizes, shares, mode and priority.

``--gpumem`` and ``--gpucores``, or Python's arguments of these names, give one value for every
card, or one per card, which names each by UUID or index; the cards that are not named have no
limit. The two forms do not mix, so that no line has to be read twice. Mode and priority hold on
every card.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from hami_py._native import parse_memory, parse_share
from hami_py.errors import InvalidValue
from hami_py.model.limits import MODES, PRIORITIES, Mode, Priority

MemoryRequest: TypeAlias = int | Mapping[str, int] | None
"""Bytes on every card, or bytes by the card's name as written, or no limit."""

ShareRequest: TypeAlias = int | Mapping[str, int] | None
"""Percent of every card's time, or by the card's name as written, or nothing said; 100 = the whole
card, so no limit."""

Shares: TypeAlias = str | int | Mapping[str, str | int]
"""A share as Python callers write it: ``30``, ``"30"``, ``"30%"``, or one of these by card."""

WHOLE = 100
"""Percent: a share that is no limit."""

_NO_SHARE = "none"
"""How the whole card is written where a person would rather not write 100."""

_Choice = TypeVar("_Choice", bound=str)


@dataclass(frozen=True)
class LimitRequest:
    """The limits that a slice is to have; what is None is not spoken of.

    Attributes:
        memory: bytes.
        share: percent of the time.
        mode: how shares hold, on every card.
        priority: before or after whom it gets the cards.
    """

    memory: MemoryRequest = None
    share: ShareRequest = None
    mode: Mode | None = None
    priority: Priority | None = None

    @property
    def is_empty(self) -> bool:
        """Nothing is asked for."""
        return self == LimitRequest()


def parse_options(
    gpumem: Iterable[str],
    gpucores: Iterable[str],
    mode: str | None = None,
    priority: str | None = None,
) -> LimitRequest:
    """The request that options of the command line make together.

    Args:
        gpumem: repeated ``--gpumem SIZE`` or ``--gpumem CARD=SIZE``.
        gpucores: repeated ``--gpucores PERCENT`` or ``--gpucores CARD=PERCENT``.
        mode: ``--mode``.
        priority: ``--priority``.

    Raises:
        InvalidValue: a value that is not understood, a card named twice, or both forms.
    """
    memory = _parse_repeated("gpumem", "SIZE", gpumem, _parse_size)
    share = _parse_repeated("gpucores", "PERCENT", gpucores, _parse_percent)
    return LimitRequest(memory, share, *_parse_regime(mode, priority))


def parse_arguments(
    gpumem: str | Mapping[str, str] | None = None,
    gpucores: Shares | None = None,
    mode: Mode | None = None,
    priority: Priority | None = None,
) -> LimitRequest:
    """The request that Python's arguments of these names make together.

    Raises:
        InvalidValue: a value that is not understood, or a mapping of no card.
    """
    memory = _parse_argument("gpumem", "'4GiB'", gpumem, _parse_size)
    share = _parse_argument("gpucores", "30", gpucores, _parse_percent)
    return LimitRequest(memory, share, *_parse_regime(mode, priority))


def parse_devices(devices: Sequence[str]) -> tuple[str, ...]:
    """The cards that Python's ``devices=["0", "GPU-…"]`` names.

    Raises:
        InvalidValue: it is no list of strings.
    """
    if isinstance(devices, str) or not isinstance(devices, Iterable):
        raise InvalidValue("devices", str(devices), "write a list, like ['0']")
    _require_texts("devices", devices, "['0']")
    return tuple(devices)


def _parse_repeated(
    field: str, what: str, options: Iterable[str], parse: Callable[[object, str], int]
) -> int | Mapping[str, int] | None:
    """The value of every card, or those by card, or none."""
    every: list[int] = []
    by_card: dict[str, int] = {}
    for option in options:
        card, equals, text = option.rpartition("=")
        if not equals:
            every.append(parse(text, field))
        elif not card.isprintable() or not card:
            fix = f"write CARD={what} with a card's UUID or index, or {what} for every card"
            raise InvalidValue(field, option, fix)
        elif card in by_card:
            raise InvalidValue(field, option, f"card {card} is given twice; keep one")
        else:
            by_card[card] = parse(text, f"{field} {card}")
        if len(every) + bool(by_card) > 1:
            fix = f"give one {what} for every card, or CARD={what} for each"
            raise InvalidValue(field, option, fix)
    return every[0] if every else by_card or None


def _parse_argument(
    field: str, example: str, value: object, parse: Callable[[object, str], int]
) -> int | Mapping[str, int] | None:
    """The same of an argument, which is one value or a mapping."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        if not value:
            fix = f"name at least one card in it, like {{'0': {example}}}"
            raise InvalidValue(field, "{}", fix)
        _require_texts(field, value, f"{{'0': {example}}}")
        return {card: parse(each, f"{field} {card}") for card, each in value.items()}
    return parse(value, field)


def _parse_size(text: object, field: str) -> int:
    """A whole number and a unit; Python callers may pass what is no text at all."""
    size = parse_memory(text, "api", field) if isinstance(text, str) else None
    if size is None:
        fix = "write a string with a unit, like '4GiB' or '4096MiB'"
        raise InvalidValue(field, repr(text), fix)
    return size


def _parse_percent(value: object, field: str) -> int:
    """A whole number from 1 to 100, alone or with a percent sign; ``none`` is 100."""
    if value == _NO_SHARE:
        return WHOLE
    # Not isinstance: True is no 1 %.
    text = str(value) if type(value) is int else value
    share = parse_share(text, "api", field) if isinstance(text, str) else None
    if share is None:
        raise InvalidValue(field, repr(value), "write a whole number from 1 to 100, like 30")
    return share


def _parse_regime(mode: object, priority: object) -> tuple[Mode | None, Priority | None]:
    return _chosen("mode", mode, MODES), _chosen("priority", priority, PRIORITIES)


def _chosen(field: str, value: object, choices: Sequence[_Choice]) -> _Choice | None:
    """One of these words, exactly as it stands here; None where nothing is said."""
    for choice in choices:
        if value == choice:
            return choice
    if value is None:
        return None
    fix = f"write {', '.join(choices[:-1])} or {choices[-1]}"
    raise InvalidValue(field, value if isinstance(value, str) else repr(value), fix)


def _require_texts(field: str, names: Iterable[object], example: str) -> None:
    """Cards are named by strings: a number could be CUDA's, which counts otherwise."""
    for name in names:
        if not isinstance(name, str):
            fix = f"write a card's UUID or index as a string, like {example}"
            raise InvalidValue(field, repr(name), fix)
