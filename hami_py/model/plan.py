"""From a request and the cards of the machine to the rows of a limits page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hami_py._native import MAX_CARDS, format_memory, same_card
from hami_py.errors import InvalidValue, UnknownCard
from hami_py.model.cards import Card, DriverMemory, find
from hami_py.model.limits import CardLimit
from hami_py.model.request import UNLIMITED, WHOLE, LimitRequest


@dataclass(frozen=True)
class Plan:
    """A slice to be created.

    Attributes:
        limits: one row per card of the slice. A program cannot use a card without a row.
        devices: the chosen cards by UUID, in the order in which numbers count them; None = all.
    """

    limits: tuple[CardLimit, ...]
    devices: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    driver_memory: Mapping[str, DriverMemory] = field(default_factory=dict)
    indices: Mapping[str, int] = field(default_factory=dict)


def plan(
    cards: Sequence[Card],
    request: LimitRequest,
    chosen: Sequence[str] = (),
    shown: Sequence[Card] | None = None,
) -> Plan:
    """Plan a slice for a request, with cards in the order in which they were chosen, or with all.

    ``shown`` are the cards that ``CUDA_VISIBLE_DEVICES`` allows.

    Raises:
        UnknownCard: a card does not exist, is not visible, or is limited but not chosen.
        InvalidValue: more cards than a slice can have.
    """
    ours = list(cards)
    if chosen:
        ours = list(dict.fromkeys(find(cards, name, "device") for name in chosen))
        for card in ours:
            if shown is not None and card.uuid not in {each.uuid for each in shown}:
                raise UnknownCard(
                    f"device {card.uuid}",
                    "CUDA_VISIBLE_DEVICES hides it",
                    "choose a visible card, or unset CUDA_VISIBLE_DEVICES",
                )
    if len(ours) > MAX_CARDS:
        fix = f"a slice has at most {MAX_CARDS} cards; choose some of them"
        raise InvalidValue("device", f"{len(ours)} cards", fix)

    memory = _by_uuid(cards, ours, "gpumem", request.memory)
    shares = _by_uuid(cards, ours, "gpucores", request.share)
    memory, notes = _lowered(memory, ours)
    rows = tuple(
        _regulated(
            CardLimit(card.uuid, _size(memory.get(card.uuid))), shares.get(card.uuid), request
        )
        for card in ours
    )
    devices = tuple(card.uuid for card in ours) if chosen else None
    driver_memory = {card.uuid: card.driver_memory for card in ours}
    return Plan(rows, devices, notes, driver_memory, {card.uuid: card.index for card in ours})


def too_low(
    rows: Sequence[CardLimit], needed: Sequence[int], what: str, cards: Sequence[Card]
) -> tuple[str, ...]:
    """Messages about limits that no new memory fits into, one line for cards that are alike.

    ``needed`` has the bytes that do not fit, by row, and ``what`` says what they are.
    """
    found: dict[tuple[int, int], list[int]] = {}
    for row, least in zip(rows, needed, strict=True):
        if row.memory is not None and row.memory < least:
            indices = [card.index for card in cards if same_card(card.uuid, row.uuid)]
            found.setdefault((row.memory, least), []).extend(indices)
    return tuple(
        f"gpumem {_mib(limit)} is less than the {_mib(least)} that {what} on"
        f" {named(indices) if indices else 'its card'}: requests are refused"
        for (limit, least), indices in found.items()
    )


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.0f}MiB" if size >= 1 << 20 else format_memory(size)


def resized(
    cards: Sequence[Card], rows: Sequence[CardLimit], request: LimitRequest, *, whole: bool
) -> tuple[tuple[CardLimit, ...], tuple[str, ...]]:
    """New limits for the rows of an existing slice; limits that are not requested stay.

    ``whole``: this process sees the cards in full. In a slice it sees fewer and smaller ones.

    Returns:
        The new rows, and messages for the user.

    Raises:
        UnknownCard: a card does not exist, or the slice does not have it.
        InvalidValue: the request is empty, or names a card twice.
    """
    if request.is_empty:
        fix = "write a size, like '4GiB', or set gpucores, mode or priority"
        raise InvalidValue("gpumem", "None", fix)
    uuids = [row.uuid for row in rows]
    memory = _by_row(cards, uuids, "gpumem", request.memory)
    shares = _by_row(cards, uuids, "gpucores", request.share)
    notes: tuple[str, ...] = ()
    if whole:
        memory, notes = _lowered(memory, cards)
    changed = (
        replace(row, memory=_size(memory[row.uuid])) if row.uuid in memory else row for row in rows
    )
    new_rows = tuple(_regulated(row, shares.get(row.uuid), request) for row in changed)
    return new_rows, (*notes, *ineffective(new_rows, request))


def ineffective(rows: Sequence[CardLimit], request: LimitRequest) -> tuple[str, ...]:
    """Messages about parts of a request that have no effect on these rows, one line each.

    A mode without a share is not an error, because the share may come later; and it needs no
    message if the same request removes the share. A priority has an effect without a share, beside
    slices that have one.
    """
    has_share = any(row.share is not None for row in rows)
    if request.mode is None or request.share is not None or has_share:
        return ()
    return (
        f"mode {request.mode} has no effect yet: the slice has no share of a card's time;"
        " set one with gpucores, like 30",
    )


def _size(limit: int | None) -> int | None:
    return None if limit == UNLIMITED else limit


def _regulated(row: CardLimit, share: int | None, request: LimitRequest) -> CardLimit:
    """The row with the requested share, mode and priority; a share of 100 is no limit."""
    if share is not None:
        row = replace(row, share=None if share == WHOLE else share)
    return replace(row, mode=request.mode or row.mode, priority=request.priority or row.priority)


def _by_row(
    cards: Sequence[Card], rows: Sequence[str], field: str, limit: int | Mapping[str, int] | None
) -> dict[str, int]:
    """The requested limit by row. A card that this process cannot see is named by UUID."""
    if not isinstance(limit, Mapping):
        return {} if limit is None else dict.fromkeys(rows, limit)
    found: dict[str, int] = {}
    for name, value in limit.items():
        row = _row_named(name, cards, rows, field)
        if row in found:
            raise InvalidValue(field, name, f"it is {row}, which is named already; keep one")
        found[row] = value
    return found


def _row_named(name: str, cards: Sequence[Card], rows: Sequence[str], field: str) -> str:
    """The row of a card that is named by UUID or by index."""
    uuid = name if any(same_card(row, name) for row in rows) else find(cards, name, field).uuid
    for row in rows:
        if same_card(row, uuid):
            return row
    fix = "leave it out, or create another slice with this card"
    raise UnknownCard(f"{field} {name}", "the slice does not have it", fix)


def _by_uuid(
    cards: Sequence[Card], ours: list[Card], field: str, limit: int | Mapping[str, int] | None
) -> dict[str, int]:
    """The requested limit by card."""
    if not isinstance(limit, Mapping):
        return {} if limit is None else {card.uuid: limit for card in ours}
    found: dict[str, int] = {}
    for name, value in limit.items():
        card = find(cards, name, field)
        if card not in ours:
            fix = "choose this card too, or leave its limit out"
            raise UnknownCard(f"{field} {name}", "it is not among the chosen cards", fix)
        if card.uuid in found:
            raise InvalidValue(field, name, f"card {card.index} is {card.uuid}; keep one")
        found[card.uuid] = value
    return found


def _lowered(
    limits: Mapping[str, int], cards: Sequence[Card]
) -> tuple[dict[str, int], tuple[str, ...]]:
    """The limits, none above its card's memory, and a message for each that was lowered."""
    lowered = dict(limits)
    found: dict[tuple[int, int], list[int]] = {}
    for card in cards:
        for uuid, limit in limits.items():
            if same_card(card.uuid, uuid) and card.memory_total < limit != UNLIMITED:
                lowered[uuid] = card.memory_total
                found.setdefault((limit, card.memory_total), []).append(card.index)
    notes = (
        f"gpumem {format_memory(limit)} is more than {named(indices)}"
        f" {'has' if len(indices) == 1 else 'have'}: the limit is set to {format_memory(total)}"
        for (limit, total), indices in found.items()
    )
    return lowered, tuple(notes)


def named(indices: Sequence[int]) -> str:
    """Cards in a message: ``card 1``, ``cards 0 and 2``."""
    *others, last = map(str, indices)
    return f"cards {', '.join(others)} and {last}" if others else f"card {last}"
