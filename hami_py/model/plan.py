"""From a request and the cards of the machine to the rows of a limits page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hami_py._native import MAX_CARDS, format_memory, same_card
from hami_py.errors import InvalidValue, UnknownCard
from hami_py.model.cards import Card, find
from hami_py.model.limits import CardLimit
from hami_py.model.request import WHOLE, LimitRequest


@dataclass(frozen=True)
class Plan:
    """What a slice will be.

    Attributes:
        limits: one row per card of the slice. A card without a row cannot be used in it.
        devices: UUIDs for ``CUDA_VISIBLE_DEVICES``; None = leave the variable alone.
        notes: what the caller must be told, one line each.
    """

    limits: tuple[CardLimit, ...]
    devices: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()


def plan(
    cards: Sequence[Card],
    asked: LimitRequest,
    chosen: Sequence[str] = (),
    shown: Sequence[Card] | None = None,
) -> Plan:
    """The slice for a request.

    Args:
        cards: every card of the machine.
        asked: the limits asked for.
        chosen: cards by UUID or index, in the order that the program shall see; none = all.
        shown: the cards that ``CUDA_VISIBLE_DEVICES`` allows, where cards are chosen.

    Raises:
        UnknownCard: a card is not there, not visible, or limited and not chosen.
        InvalidValue: more cards than a slice can hold.
    """
    ours = list(cards)
    if chosen:
        ours = list(dict.fromkeys(find(cards, name, "device") for name in chosen))
        for card in ours:
            if shown is not None and card not in shown:
                raise UnknownCard(
                    f"device {card.uuid}",
                    "CUDA_VISIBLE_DEVICES hides it",
                    "choose a visible card, or unset CUDA_VISIBLE_DEVICES",
                )
    if len(ours) > MAX_CARDS:
        fix = f"a slice has at most {MAX_CARDS} cards; choose some of them"
        raise InvalidValue("device", f"{len(ours)} cards", fix)

    memory = _by_uuid(cards, ours, "gpumem", asked.memory)
    shares = _by_uuid(cards, ours, "gpucores", asked.share)
    memory, notes = _lowered(memory, ours)
    rows = tuple(
        _regulated(CardLimit(card.uuid, memory.get(card.uuid)), shares.get(card.uuid), asked)
        for card in ours
    )
    devices = tuple(card.uuid for card in ours) if chosen else None
    return Plan(rows, devices, notes)


def resized(
    cards: Sequence[Card], rows: Sequence[CardLimit], asked: LimitRequest, *, whole: bool
) -> tuple[tuple[CardLimit, ...], tuple[str, ...]]:
    """New limits for the rows of a slice that is there; what is not asked for stays.

    Args:
        cards: the cards that can be seen from here.
        rows: the slice's rows, as they stand there.
        asked: the limits asked for.
        whole: the cards are seen as they are. A process in a slice sees fewer, and smaller ones.

    Returns:
        The rows as they shall be, and what the caller must be told.

    Raises:
        UnknownCard: a card is not there, or the slice does not have it.
        InvalidValue: nothing is asked for, or a card is named twice.
    """
    if asked.is_empty:
        fix = "write a size, like '4GiB', or give gpucores, mode or priority"
        raise InvalidValue("gpumem", "None", fix)
    uuids = [row.uuid for row in rows]
    memory = _by_row(cards, uuids, "gpumem", asked.memory)
    shares = _by_row(cards, uuids, "gpucores", asked.share)
    notes: tuple[str, ...] = ()
    if whole:
        memory, notes = _lowered(memory, cards)
    changed = (replace(row, memory=memory.get(row.uuid, row.memory)) for row in rows)
    wanted = tuple(_regulated(row, shares.get(row.uuid), asked) for row in changed)
    return wanted, (*notes, *unheard(wanted, asked))


def unheard(rows: Sequence[CardLimit], asked: LimitRequest) -> tuple[str, ...]:
    """What the caller must be told of a request that says nothing as the rows are, a line each.

    A mode says how a share holds. It is no error without one, which may come later, and no news to
    who lifts it by the same request. A priority counts without one beside slices that have one.
    """
    if asked.mode is None or asked.share is not None or any(row.share is not None for row in rows):
        return ()
    return (
        f"mode {asked.mode} says nothing yet: no card of the slice has a share of its time;"
        " give one with gpucores, like 30",
    )


def _regulated(row: CardLimit, share: int | None, asked: LimitRequest) -> CardLimit:
    """The row with the share, mode and priority asked for; the whole card is no limit."""
    if share is not None:
        row = replace(row, share=None if share == WHOLE else share)
    return replace(row, mode=asked.mode or row.mode, priority=asked.priority or row.priority)


def _by_row(
    cards: Sequence[Card], rows: Sequence[str], field: str, asked: int | Mapping[str, int] | None
) -> dict[str, int]:
    """What is asked for by row; a card that cannot be seen from here is named by UUID."""
    if not isinstance(asked, Mapping):
        return {} if asked is None else dict.fromkeys(rows, asked)
    found: dict[str, int] = {}
    for name, limit in asked.items():
        row = _row_named(name, cards, rows, field)
        if row in found:
            raise InvalidValue(field, name, f"it is {row}, which is named already; keep one")
        found[row] = limit
    return found


def _row_named(name: str, cards: Sequence[Card], rows: Sequence[str], field: str) -> str:
    """The row of a card named by UUID, also of one that cannot be seen from here, or by index."""
    uuid = name if any(same_card(row, name) for row in rows) else find(cards, name, field).uuid
    for row in rows:
        if same_card(row, uuid):
            return row
    fix = "leave it out, or make another slice with it"
    raise UnknownCard(f"{field} {name}", "the slice does not have it", fix)


def _by_uuid(
    cards: Sequence[Card], ours: list[Card], field: str, asked: int | Mapping[str, int] | None
) -> dict[str, int]:
    """What is asked for by card."""
    if not isinstance(asked, Mapping):
        return {} if asked is None else {card.uuid: asked for card in ours}
    found: dict[str, int] = {}
    for name, limit in asked.items():
        card = find(cards, name, field)
        if card not in ours:
            fix = "choose it too, or leave its limit out"
            raise UnknownCard(f"{field} {name}", "it is not among the chosen cards", fix)
        if card.uuid in found:
            raise InvalidValue(field, name, f"card {card.index} is {card.uuid}; keep one")
        found[card.uuid] = limit
    return found


def _lowered(
    asked: Mapping[str, int], cards: Sequence[Card]
) -> tuple[dict[str, int], tuple[str, ...]]:
    """Bytes by card, none above the card's own, and a line for each that was."""
    lowered, notes = dict(asked), []
    for card in cards:
        for uuid, limit in asked.items():
            if same_card(card.uuid, uuid) and limit > card.memory_total:
                lowered[uuid] = card.memory_total
                notes.append(
                    f"gpumem {format_memory(limit)} is more than card {card.index} ({card.uuid})"
                    f" has: its limit is {format_memory(card.memory_total)}"
                )
    return lowered, tuple(notes)
