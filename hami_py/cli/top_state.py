"""What ``hami top`` shows: cards and slices at one moment, and their last minute. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hami_py.cli.output import legible_command
from hami_py.cli.ps_table import Key, uses_of
from hami_py.cli.values import OF_MACHINE, written
from hami_py.model import Card, CardUsage, NodeCard, Rates, SliceInfo, SliceUse
from hami_py.model.columns import orders
from hami_py.slices import SHOWN_ID, CardUser

_HISTORY = 60
"""Readings that are kept: a minute of one a second."""

OWN = "this container"


@dataclass(frozen=True)
class Reading:
    """The cards, the slices, the processes and messages about them, at one moment."""

    cards: Sequence[NodeCard]
    rows: Sequence[SliceUse]
    processes: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = ()


def process_rows(
    users: Sequence[CardUser], cards: Sequence[NodeCard], slices: Sequence[SliceInfo]
) -> list[list[str]]:
    """PID, card, user, memory, slice and command of the processes on the cards, as text."""
    indexes = {card.uuid: str(card.index) for card in cards}
    inside = {
        process.pid: each.name or each.id[:SHOWN_ID]
        for each in slices
        for process in each.processes
    }
    return [
        [
            str(each.pid),
            indexes[each.card],
            each.user or "-",
            written(each.memory, "bytes", OF_MACHINE),
            # Without a user, the numbers are not those of this machine.
            inside.get(each.pid, "-") if each.user is not None else "-",
            legible_command(each.command),
        ]
        for each in users
        if each.card in indexes
    ]


def rows_of(slices: Sequence[SliceInfo]) -> list[SliceUse]:
    """The user's slices, without the cards that a slice does not use, if it uses another one."""
    uses = map(uses_of, slices)
    return [
        row
        for rows in uses
        for row in [row for row in rows if row.use.memory_used or row.use.memory_peak] or rows
        if row.is_known
    ]


def rows_of_own(usages: Sequence[CardUsage], cards: Sequence[Card]) -> list[SliceUse]:
    """The slice that this process is in, as in a container."""
    indexes = {card.uuid: card.index for card in cards}
    return [
        SliceUse(
            use=replace(card, index=indexes.get(card.uuid)),
            pod=OWN,
            processes=sum(process.alive for process in card.processes),
        )
        for card in usages
    ]


_SORTS = orders("top")
ORDERS = {name[0].lower(): name for name in ("name", *_SORTS)}
"""By key: what slices are sorted by, and then by name."""


@dataclass(frozen=True)
class Screen:
    """One picture.

    Attributes:
        cards: each card, and the used part of its memory in the last minute.
        rows: each slice, and its part of the card's time in the last minute, oldest first.
    """

    cards: Sequence[tuple[NodeCard, Sequence[float]]]
    rows: Sequence[tuple[SliceUse, Sequence[float]]]
    order: str
    processes: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = ()


@dataclass
class TopState:
    """Keeps the last minute, and the order that the user has chosen."""

    order: str = "n"
    _memory: dict[str, deque[float]] = field(default_factory=dict)
    _busy: dict[Key, deque[float]] = field(default_factory=dict)
    _rates: Rates[Key] = field(default_factory=Rates)
    _shares: dict[Key, float | None] = field(default_factory=dict)

    def take(self, reading: Reading, now_s: float) -> Screen:
        """The picture after a reading; ``now_s`` is of any monotonic clock."""
        self._memory = {
            each.uuid: _with(self._memory.get(each.uuid), _part(each)) for each in reading.cards
        }
        shares = self._rates.take((row.key, now_s, row.use.engine_time) for row in reading.rows)
        self._shares = {
            row.key: row.with_share_used(shares[row.key]).share_used for row in reading.rows
        }
        self._busy = {key: _with(self._busy.get(key), part) for key, part in self._shares.items()}
        return self.screen(reading)

    def screen(self, reading: Reading) -> Screen:
        """The picture of a reading that was taken, in the order that is chosen now."""
        name = ORDERS[self.order]
        rows = [
            (replace(row, share_used=self._shares[row.key]), self._busy[row.key])
            for row in reading.rows
        ]

        def place(of: tuple[SliceUse, object]) -> tuple[float, str]:
            value = _SORTS[name].value(of[0]) if name in _SORTS else None
            return -float(value or 0.0), of[0].pod

        return Screen(
            [(each, self._memory[each.uuid]) for each in reading.cards],
            sorted(rows, key=place),
            name,
            reading.processes,
            reading.notes,
        )


def _part(card: NodeCard) -> float | None:
    return None if card.memory_used is None or not card.memory else card.memory_used / card.memory


def _with(history: deque[float] | None, value: float | None) -> deque[float]:
    history = deque(maxlen=_HISTORY) if history is None else history
    if value is not None:
        history.append(value)
    return history
