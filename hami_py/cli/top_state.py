"""What ``hami top`` shows: cards and slices at one moment, and their last minute. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hami_py.cli.output import approximate, legible_command
from hami_py.model import Card, CardUsage, SliceCard, SliceInfo
from hami_py.slices import SHOWN_ID, CardUser

_HISTORY = 60
"""Readings that are kept: a minute of one a second."""

OWN = "this container"


@dataclass(frozen=True)
class Row:
    """A slice on one of its cards.

    Attributes:
        key: the slice and the card, for its history.
        name: the slice's name, or the beginning of its id.
        card: the card's index; ``None``: unknown.
        use: its limits and its use.
        processes: how many it has.
        about: its command.
    """

    key: tuple[str, str]
    name: str
    card: int | None
    use: SliceCard | CardUsage
    processes: int
    about: str


@dataclass(frozen=True)
class CardState:
    """A card: all of its memory, and the part in use (``None``: unknown), in bytes."""

    card: Card
    used: int | None


@dataclass(frozen=True)
class ProcessRow:
    """A process on a card, of any user.

    Attributes:
        pid: its PID on the host.
        card: the card's index; ``None``: unknown.
        user: who runs it; ``-``: unknown.
        used: the memory that the driver holds for it; ``-``: unknown.
        slice_: the slice that it is in; ``-``: in none of this user.
        about: its command.
    """

    pid: int
    card: int | None
    user: str
    used: str
    slice_: str
    about: str


@dataclass(frozen=True)
class Reading:
    """The cards, the slices, the processes and messages about them, at one moment."""

    cards: Sequence[CardState]
    rows: Sequence[Row]
    processes: Sequence[ProcessRow] = ()
    notes: Sequence[str] = ()


def process_rows(
    users: Sequence[CardUser], cards: Sequence[Card], slices: Sequence[SliceInfo]
) -> list[ProcessRow]:
    """The processes on the cards, those with the most memory first."""
    indexes = {card.uuid: card.index for card in cards}
    inside = {
        process.pid: each.name or each.id[:SHOWN_ID]
        for each in slices
        for process in each.processes
    }
    return [
        ProcessRow(
            each.pid,
            indexes.get(each.card),
            each.user or "-",
            "-" if each.memory is None else approximate(each.memory),
            # Without a user, the numbers are not those of this machine.
            inside.get(each.pid, "-") if each.user is not None else "-",
            legible_command(each.command),
        )
        for each in users
        if each.card in indexes
    ]


def rows_of(slices: Sequence[SliceInfo]) -> list[Row]:
    """The user's slices, without the cards that a slice does not use, if it uses another one."""
    return [
        Row(
            *((each.id, card.uuid), each.name or each.id[:SHOWN_ID], card.index, card),
            *(len(each.processes), legible_command(each.command)),
        )
        for each in slices
        for card in [card for card in each.cards if card.memory_used or card.memory_peak]
        or each.cards
    ]


def rows_of_own(usages: Sequence[CardUsage], cards: Sequence[Card]) -> list[Row]:
    """The slice that this process is in, as in a container."""
    indexes = {card.uuid: card.index for card in cards}
    return [
        Row((OWN, card.uuid), OWN, indexes.get(card.uuid), card, len(card.processes), "")
        for card in usages
    ]


ORDERS: Mapping[str, tuple[str, Callable[[Row, float], float]]] = {
    "n": ("name", lambda _, __: 0.0),
    "m": ("memory", lambda row, _: -row.use.memory_used),
    "g": ("GPU time", lambda _, busy: -busy),
    "t": ("throttled", lambda row, _: -row.use.throttled),
    "r": ("refusals", lambda row, _: -row.use.refusals),
}
"""By key: what slices are sorted by, and then by name."""


@dataclass(frozen=True)
class Screen:
    """One picture.

    Attributes:
        cards: each card, and the used part of its memory in the last minute.
        rows: each slice, and its part of the card's time in the last minute, oldest first.
        order: what the rows are sorted by.
        processes: the processes on the cards.
        notes: messages.
    """

    cards: Sequence[tuple[CardState, Sequence[float]]]
    rows: Sequence[tuple[Row, Sequence[float]]]
    order: str
    processes: Sequence[ProcessRow] = ()
    notes: Sequence[str] = ()


@dataclass
class TopState:
    """Keeps the last minute, and the order that the user has chosen."""

    order: str = "n"
    _memory: dict[str, deque[float]] = field(default_factory=dict)
    _busy: dict[tuple[str, str], deque[float]] = field(default_factory=dict)
    _engine: dict[tuple[str, str], float] = field(default_factory=dict)
    _at_s: float = 0.0

    def take(self, reading: Reading, now_s: float) -> Screen:
        """The picture after a reading; ``now_s`` is of any monotonic clock."""
        cards, rows = reading.cards, reading.rows
        self._memory = {
            each.card.uuid: _with(self._memory.get(each.card.uuid), _part(each)) for each in cards
        }
        elapsed_s = now_s - self._at_s
        busy = {}
        for row in rows:
            before = self._engine.get(row.key)
            rate = None
            if before is not None and elapsed_s > 0:
                # Not below 0: while a process ends, its time may count in neither place.
                rate = min(1.0, max(0.0, row.use.engine_time - before) / elapsed_s)
            busy[row.key] = _with(self._busy.get(row.key), rate)
        self._busy, self._at_s = busy, now_s
        self._engine = {row.key: row.use.engine_time for row in rows}
        return self.screen(reading)

    def screen(self, reading: Reading) -> Screen:
        """The picture of a reading that was taken, in the order that is chosen now."""
        name, key = ORDERS[self.order]

        def place(row: Row) -> tuple[float, str]:
            history = self._busy[row.key]
            return key(row, history[-1] if history else 0.0), row.name

        ordered = sorted(reading.rows, key=place)
        return Screen(
            [(each, self._memory[each.card.uuid]) for each in reading.cards],
            [(row, self._busy[row.key]) for row in ordered],
            name,
            reading.processes,
            reading.notes,
        )


def _part(state: CardState) -> float | None:
    total = state.card.memory_total
    return None if state.used is None or not total else state.used / total


def _with(history: deque[float] | None, value: float | None) -> deque[float]:
    history = deque(maxlen=_HISTORY) if history is None else history
    if value is not None:
        history.append(value)
    return history
