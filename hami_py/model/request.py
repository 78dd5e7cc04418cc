"""The limits that a user requests, parsed before the cards are known.

``--gpumem`` and ``--gpucores``, or Python's arguments of these names, set one value for every card,
or one value per card, named by UUID or index; cards that are not named have no limit. The two forms
cannot be mixed. Mode and priority hold on every card.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from hami_py._native import parse_memory, parse_share
from hami_py.errors import InvalidValue
from hami_py.model.limits import MODES, PRIORITIES, Mode, Priority

MemoryRequest: TypeAlias = int | Mapping[str, int] | None
"""Bytes on every card, or bytes by the name of the card, or None = no limit."""

ShareRequest: TypeAlias = int | Mapping[str, int] | None
"""Percent of every card's time, or percent by the name of the card, or None = not set; 100 = the
whole card, so no limit."""

Shares: TypeAlias = str | int | Mapping[str, str | int]
"""The ``gpucores`` argument: ``30``, ``"30"``, ``"30%"``, or one of these by card."""

Sizes: TypeAlias = str | int | Mapping[str, str | int]
"""The ``gpumem`` argument: ``"4GiB"``, bytes, or one of these by card."""

WHOLE = 100
"""Percent: a share that is not a limit."""

UNLIMITED = (1 << 64) - 1
"""Bytes: a size that is no limit, as on the limits page."""

_NONE = "none"
"""No limit, on memory or time."""

_Choice = TypeVar("_Choice", bound=str)


@dataclass(frozen=True)
class LimitRequest:
    """The limits requested for a slice; None = not requested.

    Attributes:
        memory: bytes.
        share: percent of the time.
    """

    memory: MemoryRequest = None
    share: ShareRequest = None
    mode: Mode | None = None
    priority: Priority | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no limit is requested."""
        return self == LimitRequest()


def parse_options(
    gpumem: Iterable[str],
    gpucores: Iterable[str],
    mode: str | None = None,
    priority: str | None = None,
) -> LimitRequest:
    """Parse the options of the command line.

    Raises:
        InvalidValue: a value is invalid, a card is named twice, or the two forms are mixed.
    """
    memory = _parse_repeated("gpumem", "SIZE", gpumem, _parse_size)
    share = _parse_repeated("gpucores", "PERCENT", gpucores, _parse_percent)
    return LimitRequest(memory, share, *_parse_regime(mode, priority))


def parse_arguments(
    gpumem: Sizes | None = None,
    gpucores: Shares | None = None,
    mode: Mode | None = None,
    priority: Priority | None = None,
) -> LimitRequest:
    """Parse Python's arguments of these names.

    Raises:
        InvalidValue: a value is invalid, or a mapping is empty.
    """
    memory = _parse_argument("gpumem", "'4GiB'", gpumem, _parse_size)
    share = _parse_argument("gpucores", "30", gpucores, _parse_percent)
    return LimitRequest(memory, share, *_parse_regime(mode, priority))


def parse_devices(devices: Sequence[str | int]) -> tuple[str, ...]:
    """Parse Python's ``devices=["0", "GPU-…"]``; an index may be a number.

    Raises:
        InvalidValue: it is not a list of names.
    """
    if isinstance(devices, str) or not isinstance(devices, Iterable):
        raise InvalidValue("devices", str(devices), "write a list, like ['0']")
    names = [str(each) if type(each) is int else each for each in devices]
    _require_texts("devices", names, "['0']")
    return tuple(map(str, names))


def _parse_repeated(
    field: str, what: str, options: Iterable[str], parse: Callable[[object, str], int]
) -> int | Mapping[str, int] | None:
    """One value for every card, or values by card, or None."""
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
            raise InvalidValue(field, option, f"card {card} is named twice; keep one")
        else:
            by_card[card] = parse(text, f"{field} {card}")
        if len(every) + bool(by_card) > 1:
            fix = f"write one {what} for every card, or CARD={what} for each"
            raise InvalidValue(field, option, fix)
    return every[0] if every else by_card or None


def _parse_argument(
    field: str, example: str, value: object, parse: Callable[[object, str], int]
) -> int | Mapping[str, int] | None:
    """The same for an argument, which is one value or a mapping."""
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
    """A size with a unit, or ``none``. In Python also bytes, as ``limits()`` returns them."""
    if text == _NONE:
        return UNLIMITED
    # Not isinstance: True would be one byte.
    if type(text) is int and 0 < text < UNLIMITED:
        return text
    text = "0" if type(text) is int and text == 0 else text
    size = parse_memory(text, "api", field) if isinstance(text, str) else None
    if size is None:
        fix = "write a string with a unit, like '4GiB' or '4096MiB'"
        raise InvalidValue(field, repr(text), fix)
    return size


def _parse_percent(value: object, field: str) -> int:
    """A whole number from 1 to 100, with or without a percent sign; ``none`` is 100."""
    if value == _NONE:
        return WHOLE
    # Not isinstance: True would be 1 %.
    text = str(value) if type(value) is int else value
    share = parse_share(text, "api", field) if isinstance(text, str) else None
    if share is None:
        raise InvalidValue(field, repr(value), "write a whole number from 1 to 100, like 30")
    return share


def _parse_regime(mode: object, priority: object) -> tuple[Mode | None, Priority | None]:
    return _chosen("mode", mode, MODES), _chosen("priority", priority, PRIORITIES)


def _chosen(field: str, value: object, choices: Sequence[_Choice]) -> _Choice | None:
    """The choice that equals the value; None if the value is None."""
    for choice in choices:
        if value == choice:
            return choice
    if value is None:
        return None
    fix = f"write {', '.join(choices[:-1])} or {choices[-1]}"
    raise InvalidValue(field, value if isinstance(value, str) else repr(value), fix)


def _require_texts(field: str, names: Iterable[object], example: str) -> None:
    """Cards are named by strings: an int could be meant as CUDA's number of a card."""
    for name in names:
        if not isinstance(name, str):
            fix = f"write a card's UUID or index as a string, like {example}"
            raise InvalidValue(field, repr(name), fix)
