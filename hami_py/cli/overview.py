"""What ``hami ps`` shows: slices as lines of text."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hami_py._native import format_memory
from hami_py.cli.say import table
from hami_py.model import SliceCard, SliceInfo, SliceProcess, SliceState, regime
from hami_py.slices import SHOWN_ID

HEADS = (
    *("NAME", "ID", "CARD", "USED", "LIMIT", "SHARE", "GPU TIME"),
    *("PROCESSES", "STATE", "COMMAND"),
)

Busy: TypeAlias = Mapping[tuple[str, str], float]
"""Percent of a card's time that was a slice's engine time between two looks, by the slice's id and
the card."""


@dataclass(frozen=True)
class Line:
    """One line of the table.

    Attributes:
        text: aligned with the others.
        state: of the slice, on its first line.
        fullness: how much of its limit a card's line says is used; 0 where there is no limit.
    """

    text: str
    state: SliceState | None = None
    fullness: float = 0.0


def lines(slices: Sequence[SliceInfo], processes: bool, busy: Busy | None = None) -> Iterator[Line]:
    """The heads, then one line per card of each slice, and per process where they are wanted.

    Args:
        slices: as they are now.
        processes: they are wanted.
        busy: where it is watched, how much of the cards was used since the last look.
    """
    rows = [row for slice_ in slices for row in _rows(slice_)]
    head, *texts = table([HEADS, *(_cells(*row, busy or {}) for row in rows)])
    yield Line(head)
    left = iter(texts)
    for slice_ in slices:
        for _slice, card, first in _rows(slice_):
            yield Line(next(left), slice_.state if first else None, _fullness(card))
        if processes:
            yield from (Line(f"  {told}") for told in _processes(slice_))


def _rows(slice_: SliceInfo) -> list[tuple[SliceInfo, SliceCard | None, bool]]:
    """One row per card, and whether it is the first; a damaged slice has one all the same."""
    cards = slice_.cards or (None,)
    return [(slice_, card, i == 0) for i, card in enumerate(cards)]


def _cells(slice_: SliceInfo, card: SliceCard | None, first: bool, busy: Busy) -> tuple[str, ...]:
    """What is said of the slice itself stands on its first line alone."""
    held = ("-",) * 5
    if card is not None:
        limit = "-" if card.memory_limit is None else format_memory(card.memory_limit)
        share = regime(card.share, card.mode, card.priority)
        time = duration(card.engine_time)
        percent = busy.get((slice_.id, card.uuid))
        # Without a share, no growth means as well that nothing is measured.
        is_measured = percent is not None and (percent > 0 or card.share is not None)
        if card.engine_time and is_measured:
            time = f"{time} ({percent:.0f}%)"
        held = (_name(card), approximate(card.memory_used), limit, share, time)
    if not first:
        return ("", "", *held, "", "", "")
    about = slice_.damage or legible_command(slice_.command)
    count = str(len(slice_.processes))
    return (slice_.name or "-", slice_.id[:SHOWN_ID], *held, count, slice_.state, about)


def _fullness(card: SliceCard | None) -> float:
    return card.memory_used / card.memory_limit if card and card.memory_limit else 0.0


def _name(card: SliceCard) -> str:
    return card.uuid[:SHOWN_ID] if card.index is None else str(card.index)


def _processes(slice_: SliceInfo) -> Iterator[str]:
    """One line per process: pid, what it holds and was refused on each card, and what it is."""
    for process in slice_.processes:
        held = ", ".join(_held(slice_, process)) or "no GPU memory"
        yield f"{process.pid}  {held}  {legible_command(process.command)}".rstrip()


def _held(slice_: SliceInfo, process: SliceProcess) -> Iterator[str]:
    names = {card.uuid: _name(card) for card in slice_.cards}
    for card in process.cards:
        told = [
            f"{card.refusals} refused" if card.refusals else "",
            f"engine time {duration(card.engine_time)}" if card.engine_time else "",
            f"throttled {duration(card.throttled)}" if card.throttled else "",
            f"debt {duration(card.debt)}" if card.debt else "",
        ]
        about = ", ".join(filter(None, told))
        more = f" ({about})" if about else ""
        yield f"card {names[card.uuid]}: {approximate(card.memory_used)}{more}"


def legible_command(command: Sequence[str]) -> str:
    """A command line as a shell would take it, on one line whatever is in it."""
    on_one_line = " ".join(shlex.join(command).split())
    return "".join(c if c.isprintable() else "�" for c in on_one_line)


def duration(seconds: float) -> str:
    """Seconds as people compare them: ``-`` for none, ``<0.1s``, ``0.3s``, ``2m05s``, ``1h00m``."""
    if not seconds:
        return "-"
    if seconds < 0.1:
        return "<0.1s"
    whole = int(seconds)
    if whole >= 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    if whole >= 60:
        return f"{whole // 60}m{whole % 60:02}s"
    # Downwards, so that a minute is a minute.
    return f"{int(seconds * 10) / 10}s"


def approximate(memory: int) -> str:
    """Bytes as people compare them: ``1.5GiB``, ``320MiB``; what is not exact has a fraction."""
    size, unit = float(memory), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    exact = size.is_integer()
    return f"{size:.0f}{unit}" if exact or size >= 100 else f"{size:.1f}{unit}"
