"""What a person asks for with ``--gpumem`` or ``gpumem=``, parsed before any card is known.

One size holds for every card; a size per card names each by UUID or index, and the cards that are
not named have no limit. The two forms do not mix, so that no line has to be read twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from hami_py.errors import InvalidValue
from hami_py.model.quantity import parse_memory, parse_share

MemoryRequest: TypeAlias = int | Mapping[str, int] | None
"""Bytes on every card, or bytes by the card's name as written, or no limit."""


def parse_gpumem(options: Iterable[str]) -> MemoryRequest:
    """The request that repeated ``--gpumem SIZE`` or ``--gpumem CARD=SIZE`` make together.

    Raises:
        InvalidValue: a bad size, a card named twice, or both forms.
    """
    every: list[int] = []
    by_card: dict[str, int] = {}
    for option in options:
        card, equals, size = option.rpartition("=")
        if not equals:
            every.append(_parse_size(size, "gpumem"))
        elif not card.isprintable() or not card:
            mend = "write CARD=SIZE with a card's UUID or index, or SIZE for every card"
            raise InvalidValue("gpumem", option, mend)
        elif card in by_card:
            raise InvalidValue("gpumem", option, f"card {card} is given twice; keep one")
        else:
            by_card[card] = _parse_size(size, f"gpumem {card}")
        if len(every) + bool(by_card) > 1:
            mend = "give one SIZE for every card, or CARD=SIZE for each"
            raise InvalidValue("gpumem", option, mend)
    return every[0] if every else by_card or None


def parse_sizes(gpumem: str | Mapping[str, str] | None) -> MemoryRequest:
    """The request that Python's ``gpumem="4GiB"`` or ``gpumem={"0": "4GiB"}`` makes.

    Raises:
        InvalidValue: a bad size, or sizes of no card.
    """
    if gpumem is None:
        return None
    if isinstance(gpumem, Mapping):
        if not gpumem:
            mend = "name at least one card in it, like {'0': '4GiB'}"
            raise InvalidValue("gpumem", "{}", mend)
        _require_texts("gpumem", gpumem, "{'0': '4GiB'}")
        return {card: _parse_size(size, f"gpumem {card}") for card, size in gpumem.items()}
    return _parse_size(gpumem, "gpumem")


def parse_devices(devices: Sequence[str]) -> tuple[str, ...]:
    """The cards that Python's ``devices=["0", "GPU-…"]`` names.

    Raises:
        InvalidValue: it is no list of strings.
    """
    if isinstance(devices, str) or not isinstance(devices, Iterable):
        raise InvalidValue("devices", str(devices), "write a list, like ['0']")
    _require_texts("devices", devices, "['0']")
    return tuple(devices)


def refuse_gpucores(gpucores: object) -> None:
    """Say that the compute share is not enforced, rather than take it and not hold it.

    Raises:
        InvalidValue: for every value; one that is no share at all gets the grammar's own message.
    """
    if gpucores is not None:
        parse_share(str(gpucores), "api", "gpucores")
        mend = "the compute share is not enforced yet; leave it out"
        raise InvalidValue("gpucores", str(gpucores), mend)


def _parse_size(text: object, field: str) -> int:
    """A whole number and a unit; Python callers may pass what is no text at all."""
    size = parse_memory(text, "api", field) if isinstance(text, str) else None
    if size is None:
        mend = "write a string with a unit, like '4GiB' or '4096MiB'"
        raise InvalidValue(field, repr(text), mend)
    return size


def _require_texts(field: str, names: Iterable[object], example: str) -> None:
    """Cards are named by strings: a number could be CUDA's, which counts otherwise."""
    for name in names:
        if not isinstance(name, str):
            mend = f"write a card's UUID or index as a string, like {example}"
            raise InvalidValue(field, repr(name), mend)
