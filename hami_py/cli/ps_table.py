"""The table of ``hami ps``: slices as lines of text, and their recent use of the cards."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hami_py._native import format_memory
from hami_py.cli.output import align, approximate, duration, legible_command
from hami_py.model import SliceCard, SliceInfo, SliceProcess, SliceState, regime
from hami_py.slices import SHOWN_ID

HEADS = (
    *("NAME", "ID", "CARD", "USED", "DRIVER", "LIMIT", "SHARE", "GPU TIME"),
    *("PROCESSES", "STATE", "COMMAND"),
)

Busy: TypeAlias = Mapping[tuple[str, str], float]
"""Engine time since the last reading in percent of the card's time, by slice id and card."""


@dataclass(frozen=True)
class Line:
    """One line of the table.

    Attributes:
        text: aligned with the other lines.
        state: the slice's state, on its first line.
        fullness: the used part of a card's limit; 0 if there is no limit.
    """

    text: str
    state: SliceState | None = None
    fullness: float = 0.0


class UsageRate:
    """Measures how fast slices use the time of their cards, from two readings."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], float] = {}
        self._at = 0.0

    def since_last(self, slices: Sequence[SliceInfo], now: float) -> Busy:
        """Percent of each card's time that each slice used since the last call.

        Args:
            slices: the current slices.
            now: the time in seconds, of any monotonic clock.

        Returns:
            Nothing for slices and cards that are new.
        """
        before, elapsed = self._seen, now - self._at
        self._seen = {
            (slice_.id, card.uuid): card.engine_time for slice_ in slices for card in slice_.cards
        }
        self._at = now
        # Not below 0: while a process ends, one reading may count its time in neither place.
        return {
            key: max(0.0, time - before[key]) / elapsed * 100
            for key, time in self._seen.items()
            if key in before and elapsed > 0
        }


def lines(
    slices: Sequence[SliceInfo],
    processes: bool,
    busy: Busy | None = None,
    without: Collection[str] = (),
) -> Iterator[Line]:
    """The column heads, then one line per card of each slice, and optionally one per process.

    Args:
        slices: the current slices.
        processes: include processes.
        busy: the recent use of the cards, with ``--watch``.
        without: heads of columns that are left out.
    """
    rows = [row for slice_ in slices for row in _rows(slice_)]
    table = [HEADS, *(_cells(*row, busy or {}) for row in rows)]
    head, *texts = align(
        [
            [cell for name, cell in zip(HEADS, row, strict=True) if name not in without]
            for row in table
        ]
    )
    yield Line(head)
    left = iter(texts)
    for slice_ in slices:
        for _slice, card, first in _rows(slice_):
            yield Line(next(left), slice_.state if first else None, _fullness(card))
        if processes:
            yield from (Line(f"  {text}") for text in _processes(slice_))


def _rows(slice_: SliceInfo) -> list[tuple[SliceInfo, SliceCard | None, bool]]:
    """One row per card, and whether it is the first; a damaged slice has one row without card."""
    cards = slice_.cards or (None,)
    return [(slice_, card, i == 0) for i, card in enumerate(cards)]


def _cells(slice_: SliceInfo, card: SliceCard | None, first: bool, busy: Busy) -> tuple[str, ...]:
    """The cells of a row. The cells about the slice itself are only in its first row."""
    of_card = ("-",) * 6
    if card is not None:
        limit = "-" if card.memory_limit is None else format_memory(card.memory_limit)
        share = regime(card.share, card.mode, card.priority)
        time = duration(card.engine_time)
        percent = busy.get((slice_.id, card.uuid))
        # Without a share, no growth can also mean that engine time is not measured.
        is_measured = percent is not None and (percent > 0 or card.share is not None)
        if card.engine_time and is_measured:
            time = f"{time} ({percent:.0f}%)"
        driver = approximate(card.driver_memory) if card.driver_memory else "-"
        of_card = (_name(card), approximate(card.memory_used), driver, limit, share, time)
    if not first:
        return ("", "", *of_card, "", "", "")
    about = slice_.damage or legible_command(slice_.command)
    count = str(len(slice_.processes))
    bypasses = sum(process.bypass is not None for process in slice_.processes)
    if bypasses:
        count = f"{count} ({bypasses} not limited)"
    return (slice_.name or "-", slice_.id[:SHOWN_ID], *of_card, count, slice_.state, about)


def _fullness(card: SliceCard | None) -> float:
    return card.memory_used / card.memory_limit if card and card.memory_limit else 0.0


def _name(card: SliceCard) -> str:
    return card.uuid[:SHOWN_ID] if card.index is None else str(card.index)


def _processes(slice_: SliceInfo) -> Iterator[str]:
    """One line per process: pid, memory and refusals on each card, and its command."""
    for process in slice_.processes:
        cards = ", ".join(_on_cards(slice_, process)) or "no GPU memory"
        if process.bypass is not None:
            cards = f"not limited: {process.bypass}"
        yield f"{process.pid}  {cards}  {legible_command(process.command)}".rstrip()


def _on_cards(slice_: SliceInfo, process: SliceProcess) -> Iterator[str]:
    names = {card.uuid: _name(card) for card in slice_.cards}
    for card in process.cards:
        driver = approximate(card.driver_memory)
        details = [
            f"driver {driver}" if card.driver_memory else "",
            f"{card.refusals} refused" if card.refusals else "",
            f"engine time {duration(card.engine_time)}" if card.engine_time else "",
            f"throttled {duration(card.throttled)}" if card.throttled else "",
            f"debt {duration(card.debt)}" if card.debt else "",
        ]
        about = ", ".join(filter(None, details))
        more = f" ({about})" if about else ""
        yield f"card {names[card.uuid]}: {approximate(card.memory_used)}{more}"
