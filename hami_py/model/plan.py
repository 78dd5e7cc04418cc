"""From a request and the cards of the machine to the rows of a limits page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hami_py._native import format_memory, same_card
from hami_py.errors import InvalidValue, UnknownCard
from hami_py.model.cards import Card, find
from hami_py.model.limits import CardLimit
from hami_py.model.request import MemoryRequest

MAX_CARDS = 16
"""Rows of a limits page (docs/architecture.md)."""


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
    memory: MemoryRequest,
    chosen: Sequence[str] = (),
    shown: Sequence[Card] | None = None,
) -> Plan:
    """The slice for a request.

    Args:
        cards: every card of the machine.
        memory: the memory limits asked for.
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
        mend = f"a slice has at most {MAX_CARDS} cards; choose some of them"
        raise InvalidValue("device", f"{len(ours)} cards", mend)

    asked, notes = _by_uuid(cards, ours, memory)
    rows = tuple(CardLimit(card.uuid, asked.get(card.uuid)) for card in ours)
    devices = tuple(card.uuid for card in ours) if chosen else None
    return Plan(rows, devices, notes)


def resized(
    cards: Sequence[Card], rows: Sequence[str], memory: MemoryRequest, *, whole: bool
) -> tuple[dict[str, int], tuple[str, ...]]:
    """New limits for the rows of a slice that is there.

    Args:
        cards: the cards that can be seen from here.
        rows: the UUIDs of the slice's rows, as they stand there.
        memory: the memory limits asked for.
        whole: the cards are seen as they are. A process in a slice sees fewer, and smaller ones.

    Returns:
        Bytes by row, for those that change, and what the caller must be told.

    Raises:
        UnknownCard: a card is not there, or the slice does not have it.
        InvalidValue: nothing is asked for, or a card is named twice.
    """
    if memory is None:
        raise InvalidValue("gpumem", "None", "write a size, like '4GiB', or sizes by card")
    asked = dict.fromkeys(rows, memory) if isinstance(memory, int) else {}
    if isinstance(memory, Mapping):
        for name, limit in memory.items():
            row = _row_named(name, cards, rows)
            if row in asked:
                raise InvalidValue("gpumem", name, f"it is {row}, which is named already; keep one")
            asked[row] = limit
    notes = []
    for card in cards if whole else ():
        for row in rows:
            if same_card(card.uuid, row) and asked.get(row, 0) > card.memory_total:
                notes.append(_lowered(asked[row], card))
                asked[row] = card.memory_total
    return asked, tuple(notes)


def _row_named(name: str, cards: Sequence[Card], rows: Sequence[str]) -> str:
    """The row of a card named by UUID, also of one that cannot be seen from here, or by index."""
    uuid = name if any(same_card(row, name) for row in rows) else find(cards, name, "gpumem").uuid
    for row in rows:
        if same_card(row, uuid):
            return row
    mend = "leave it out, or make another slice with it"
    raise UnknownCard(f"gpumem {name}", "the slice does not have it", mend)


def _by_uuid(
    cards: Sequence[Card], ours: list[Card], memory: MemoryRequest
) -> tuple[dict[str, int], tuple[str, ...]]:
    """Bytes by card, none above the card's own."""
    if not isinstance(memory, Mapping):
        asked = {} if memory is None else {card.uuid: memory for card in ours}
    else:
        asked = {}
        for name, limit in memory.items():
            card = find(cards, name, "gpumem")
            if card not in ours:
                mend = "choose it too, or leave its limit out"
                raise UnknownCard(f"gpumem {name}", "it is not among the chosen cards", mend)
            if card.uuid in asked:
                raise InvalidValue("gpumem", name, f"card {card.index} is {card.uuid}; keep one")
            asked[card.uuid] = limit
    notes = []
    for card in ours:
        limit = asked.get(card.uuid, 0)
        if limit > card.memory_total:
            notes.append(_lowered(limit, card))
            asked[card.uuid] = card.memory_total
    return asked, tuple(notes)


def _lowered(limit: int, card: Card) -> str:
    return (
        f"gpumem {format_memory(limit)} is more than card {card.index} ({card.uuid}) has:"
        f" its limit is {format_memory(card.memory_total)}"
    )
