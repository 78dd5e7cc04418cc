"""Draws ``hami top``: bars, the last minute as a line, and the slices as a table.

rich draws it, as it draws ``hami ps --watch``: a second library would need a reason. A module of
its own, because importing rich takes longer than the rest of ``hami``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from textwrap import wrap

from rich.console import Console, OverflowMethod
from rich.live import Live
from rich.text import Text

from hami_py.cli.live import keys
from hami_py.cli.top_state import ORDERS, Reading, Screen, TopState
from hami_py.cli.values import OF_MACHINE, approximate, written
from hami_py.model import NodeCard, SliceUse
from hami_py.model.columns import columns, least_wanted

Read = Callable[[], Reading]

_BAR = 20
_WIDE = 220
_LEVELS, _ASCII_LEVELS = " ▁▂▃▄▅▆▇█", " .:-=+*#@"
_NEARLY_FULL = 0.9
_GAP = "  "

_KEYS = "  ".join(f"{key} {name}" for key, name in ORDERS.items())


@dataclass(frozen=True)
class Drawing:
    """How parts of 1 are drawn on a terminal.

    Attributes:
        columns: how many readings a line has.
    """

    ascii_only: bool
    columns: int

    @classmethod
    def on(cls, console: Console) -> Drawing:
        """The drawing for this terminal."""
        return cls(console.options.ascii_only, 60 if console.width >= _WIDE else 20)

    def bar(self, part: float | None) -> Text:
        """A part as a bar, with its percent."""
        if part is None:
            return Text("-")
        full, empty = ("#", ".") if self.ascii_only else ("█", "░")
        filled = round(min(1.0, part) * _BAR)
        style = "red" if part > 1 else "yellow" if part >= _NEARLY_FULL else "green"
        bar = Text(full * filled, style=style).append(empty * (_BAR - filled), style="dim")
        return bar.append(f" {100 * part:3.0f}%", style="default")

    def line(self, parts: Sequence[float]) -> Text:
        """Parts as small columns, oldest first; the lowest one is for all above 0."""
        levels = _ASCII_LEVELS if self.ascii_only else _LEVELS
        most = len(levels) - 1
        shown = list(parts)[-self.columns :]
        return Text("".join(levels[min(most, math.ceil(part * most))] for part in shown))


@dataclass(frozen=True)
class Columns:
    """The columns of a table, and what a narrow terminal does not show of them.

    Attributes:
        heads: their names; the first one is the name of what a row is about.
        flexible: the column that becomes narrower first.
        narrowest: the width that it keeps until all ``least_wanted`` columns are left out.
        least_wanted: the columns that a narrow terminal leaves out, the first one first.
    """

    heads: Sequence[str]
    flexible: str
    narrowest: int
    least_wanted: Sequence[str]


_LONGEST_NAME = 24
"""Characters of a name that are worth more than another column."""

_CARDS = Columns(
    ("CARD", "MODEL", "USED", "MEMORY", "LAST MINUTE"), "MODEL", 32, ("LAST MINUTE", "MEMORY")
)
_SHOWN = columns("top")
_HEADS = {column.key: column.heads["top"] for column in _SHOWN}
_SLICES = Columns(
    tuple(_HEADS.values()), "COMMAND", 12, [_HEADS[key] for key in least_wanted(_SHOWN)]
)
_PROCESSES = Columns(
    ("PID", "CARD", "USER", "MEMORY", "SLICE", "COMMAND"), "COMMAND", 12, ("COMMAND", "SLICE")
)


def picture(
    screen: Screen, drawing: Drawing, *, keys: bool, width: int, height: int | None = None
) -> Text:
    """The screen, or as much of it as has room; ``keys``: with the meaning of the keys."""
    cards = [list(_card_cells(state, history, drawing)) for state, history in screen.cards]
    slices = [list(_cells(row, history, drawing)) for row, history in screen.rows]
    overflow: OverflowMethod = "crop" if drawing.ascii_only else "ellipsis"
    table = partial(_table, width=width, overflow=overflow)
    top = [*table(_CARDS, cards), Text(), *table(_SLICES, slices)]
    top += [] if slices else [Text("no slices")]
    top += [Text(line, style="yellow") for note in screen.notes for line in wrap(note, width)]
    processes = [[*map(Text, cells)] for cells in screen.processes]
    below = [Text(), *table(_PROCESSES, processes)] if processes else []
    end = [Text(), Text(f"sorted by {screen.order}; q quit  {_KEYS}", style="dim")] if keys else []
    if height is not None:
        below = _cut(below, height - len(top) - len(end), 3)
        top = _cut(top, height - len(end), 1)
    together = Text("\n").join([*top, *below, *end])
    together.no_wrap, together.overflow = True, overflow
    return together


def _cut(lines: list[Text], room: int, least: int) -> list[Text]:
    """As many lines as there is room for, and how many more there are.

    ``least``: fewer lines than that would say nothing.
    """
    if len(lines) <= room:
        return lines
    kept = room - 1 if room > least else 0
    return [*lines[:kept], Text(f"{len(lines) - kept} more lines")] if room > 0 else []


def _table(
    columns: Columns, rows: Sequence[Sequence[Text]], width: int, overflow: OverflowMethod
) -> Iterator[Text]:
    """The heads and the rows, aligned, in lines that are not wider than the terminal."""
    heads = [Text(head, style="bold") for head in columns.heads]
    widths = {
        head: max(cell.cell_len for cell in column)
        for head, *column in zip(columns.heads, heads, *rows, strict=True)
    }
    natural = widths[columns.flexible]
    widths[columns.flexible] = min(natural, columns.narrowest)
    if _total(widths) > width:
        widths[columns.heads[0]] = min(widths[columns.heads[0]], _LONGEST_NAME)
    for head in columns.least_wanted:
        if _total(widths) <= width:
            break
        widths.pop(head)
    if columns.flexible in widths:
        left = width - _total(widths) + widths[columns.flexible]
        widths[columns.flexible] = min(natural, left)
    # If the lines are still too long, the first column is cut.
    widths[columns.heads[0]] -= max(0, _total(widths) - width)
    for row in (heads, *rows):
        line = Text()
        for head, cell in zip(columns.heads, row, strict=True):
            if head in widths:
                fitted = cell.copy()
                fitted.truncate(max(1, widths[head]), overflow=overflow, pad=True)
                line = Text(_GAP).join([line, fitted]) if line else fitted
        line.rstrip()
        yield line


def _total(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + len(_GAP) * (len(widths) - 1)


def _card_cells(card: NodeCard, history: Sequence[float], drawing: Drawing) -> Iterator[Text]:
    used = written(card.memory_used, "bytes", OF_MACHINE)
    yield from (Text(str(card.index)), Text(card.model))
    yield Text(f"{used}/{approximate(card.memory)}")
    yield drawing.bar(history[-1] if history else None)
    yield drawing.line(history)


def _cells(row: SliceUse, history: Sequence[float], drawing: Drawing) -> Iterator[Text]:
    limit = "-" if row.use.memory_limit is None else approximate(row.use.memory_limit)
    for column in _SHOWN:
        value = column.value(row)
        if column.key == "history":
            yield drawing.line(history)
        elif column.key == "memory_part":
            yield drawing.bar(None if value is None else float(value))
        else:
            text = written(value, column.unit, OF_MACHINE)
            yield Text(f"{text}/{limit}" if column.key == "memory_used" else text)


def print_once(read: Read, seconds: float) -> None:
    """Print it as plain text, with the use of the time between two readings."""
    state = TopState()
    state.take(read(), time.monotonic())
    # A use per second needs two readings.
    time.sleep(seconds)
    screen = state.take(read(), time.monotonic())
    # Wide enough for all columns: a pipe has no width.
    console = Console(width=240, color_system=None)
    console.print(picture(screen, Drawing.on(console), keys=False, width=console.width))


def follow(read: Read, seconds: float) -> None:
    """Redraw it every so many seconds, until `q` or Ctrl-C; other keys sort."""
    state = TopState()
    with keys() as pressed, Live(auto_refresh=False, screen=True) as live:
        while True:
            found, until = read(), time.monotonic() + seconds
            screen = state.take(found, time.monotonic())
            while True:
                drawing, (width, height) = Drawing.on(live.console), live.console.size
                drawn = picture(screen, drawing, keys=True, width=width, height=height)
                live.update(drawn, refresh=True)
                key = pressed(max(0.0, until - time.monotonic()))
                if key in {"q", "Q"}:
                    return
                if key in ORDERS:
                    state.order = key
                    screen = state.screen(found)
                elif time.monotonic() >= until:
                    break
