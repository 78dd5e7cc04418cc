"""What ``hami ps`` shows: slices as lines of text."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hami_py._native import format_memory
from hami_py.cli.say import table
from hami_py.model import SliceCard, SliceInfo, SliceProcess, SliceState
from hami_py.slices import SHOWN_ID

HEADS = ("NAME", "ID", "CARD", "USED", "LIMIT", "PROCESSES", "STATE", "COMMAND")


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


def lines(slices: Sequence[SliceInfo], processes: bool) -> Iterator[Line]:
    """The heads, then one line per card of each slice, and per process where they are wanted."""
    rows = [row for slice_ in slices for row in _rows(slice_)]
    head, *texts = table([HEADS, *(_cells(*row) for row in rows)])
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


def _cells(slice_: SliceInfo, card: SliceCard | None, first: bool) -> tuple[str, ...]:
    """What is said of the slice itself stands on its first line alone."""
    held = ("-", "-", "-")
    if card is not None:
        limit = "-" if card.memory_limit is None else format_memory(card.memory_limit)
        held = (_name(card), approximate(card.memory_used), limit)
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
        refused = f" ({card.refusals} refused)" if card.refusals else ""
        yield f"card {names[card.uuid]}: {approximate(card.memory_used)}{refused}"


def legible_command(command: Sequence[str]) -> str:
    """A command line as a shell would take it, on one line whatever is in it."""
    on_one_line = " ".join(shlex.join(command).split())
    return "".join(c if c.isprintable() else "�" for c in on_one_line)


def approximate(memory: int) -> str:
    """Bytes as people compare them: ``1.5GiB``, ``320MiB``; what is not exact has a fraction."""
    size, unit = float(memory), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    exact = size.is_integer()
    return f"{size:.0f}{unit}" if exact or size >= 100 else f"{size:.1f}{unit}"
