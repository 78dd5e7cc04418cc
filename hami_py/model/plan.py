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

    mend = "choose it too, or leave its limit out"
    asked, notes = _by_uuid(cards, ours, memory, "it is not among the chosen cards", mend)
    rows = tuple(CardLimit(card.uuid, asked.get(card.uuid)) for card in ours)
    devices = tuple(card.uuid for card in ours) if chosen else None
    return Plan(rows, devices, notes)


def resized(
    cards: Sequence[Card], rows: Sequence[str], memory: MemoryRequest
) -> tuple[dict[str, int], tuple[str, ...]]:
    """New limits for the rows of a slice that is there.

    Args:
        cards: every card of the machine.
        rows: the UUIDs of the slice's rows, as they stand there.
        memory: the memory limits asked for.

    Returns:
        Bytes by row, for those that change, and what the caller must be told.

    Raises:
        UnknownCard: a card is not there, or the slice does not have it.
        InvalidValue: nothing is asked for, or a card is named twice.
    """
    if memory is None:
        raise InvalidValue("gpumem", "None", "write a size, like '4GiB', or sizes by card")
    row_of = {card: row for row in rows for card in cards if same_card(card.uuid, row)}
    why, mend = "the slice does not have it", "leave it out, or make another slice with it"
    sizes, notes = _by_uuid(cards, list(row_of), memory, why, mend)
    return {row: sizes[card.uuid] for card, row in row_of.items() if card.uuid in sizes}, notes


def _by_uuid(
    cards: Sequence[Card], ours: list[Card], memory: MemoryRequest, why: str, mend: str
) -> tuple[dict[str, int], tuple[str, ...]]:
    """Bytes by card, none above the card's own; why and mend are said of one that is not ours."""
    if not isinstance(memory, Mapping):
        asked = {} if memory is None else {card.uuid: memory for card in ours}
    else:
        asked = {}
        for name, limit in memory.items():
            card = find(cards, name, "gpumem")
            if card not in ours:
                raise UnknownCard(f"gpumem {name}", why, mend)
            if card.uuid in asked:
                raise InvalidValue("gpumem", name, f"card {card.index} is {card.uuid}; keep one")
            asked[card.uuid] = limit
    notes = []
    for card in ours:
        limit = asked.get(card.uuid, 0)
        if limit > card.memory_total:
            notes.append(
                f"gpumem {format_memory(limit)} is more than card {card.index} ({card.uuid}) has:"
                f" its limit is {format_memory(card.memory_total)}"
            )
            asked[card.uuid] = card.memory_total
    return asked, tuple(notes)
