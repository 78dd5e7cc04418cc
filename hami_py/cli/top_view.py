"""Draws ``hami top``: bars, the last minute as a line, and the slices as a table.

rich draws it, as it draws ``hami ps --watch``: a second library would need a reason. A module of
its own, because importing rich takes longer than the rest of ``hami``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hami_py.cli.live import keys
from hami_py.cli.output import approximate, duration
from hami_py.cli.top_state import ORDERS, CardState, Row, Screen, TopState

__all__ = ["Drawing", "follow", "picture", "print_once"]

Read = Callable[[], tuple[Sequence[CardState], Sequence[Row]]]

_BAR = 20
_WIDE = 180
_LEVELS, _ASCII_LEVELS = " ▁▂▃▄▅▆▇█", " .:-=+*#@"
_NEARLY_FULL = 0.9

_KEYS = "  ".join(f"{key} {name}" for key, (name, _) in ORDERS.items())


@dataclass(frozen=True)
class Drawing:
    """How parts of 1 are drawn on a terminal.

    Attributes:
        ascii_only: it shows no other characters.
        columns: how many readings a line has.
    """

    ascii_only: bool
    columns: int

    @classmethod
    def on(cls, console: Console) -> Drawing:
        """For this terminal."""
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


def picture(screen: Screen, drawing: Drawing, *, keys: bool) -> RenderableType:
    """All of it; ``keys``: with the line that explains them."""
    cards = Table(box=None, padding=(0, 2, 0, 0))
    for head in ("CARD", "MODEL", "USED", "MEMORY", "LAST MINUTE"):
        cards.add_column(head, no_wrap=True)
    for state, history in screen.cards:
        used = "-" if state.used is None else approximate(state.used)
        part = history[-1] if history else None
        name, memory = str(state.card.index), approximate(state.card.memory_total)
        cards.add_row(
            name, state.card.name, f"{used}/{memory}", drawing.bar(part), drawing.line(history)
        )
    slices = Table(box=None, padding=(0, 2, 0, 0))
    for head in (
        *("NAME", "CARD", "USED/LIMIT", "MEMORY", "SHARE", "GPU TIME", "LAST MINUTE"),
        *("THROTTLED", "REFUSED", "PROCESSES", "COMMAND"),
    ):
        slices.add_column(head, no_wrap=True, overflow="ellipsis")
    for row, history in screen.rows:
        slices.add_row(*_cells(row, history, drawing))
    parts: list[RenderableType] = [cards, Text(), slices]
    if not screen.rows:
        parts.append(Text("no slices"))
    if keys:
        parts += [Text(), Text(f"sorted by {screen.order}; {_KEYS}  q quit", style="dim")]
    return Group(*parts)


def _cells(row: Row, history: Sequence[float], drawing: Drawing) -> Iterator[RenderableType]:
    limit = "-" if row.limit is None else approximate(row.limit)
    yield from (Text(row.name), "-" if row.card is None else str(row.card))
    yield f"{approximate(row.used)}/{limit}"
    yield drawing.bar(row.used / row.limit if row.limit else None)
    yield row.regime
    yield f"{100 * history[-1]:.0f}%" if history else "-"
    yield drawing.line(history)
    yield duration(row.throttled_s)
    yield from (str(row.refusals), str(row.processes), Text(row.about))


def print_once(read: Read, seconds: float) -> None:
    """Print it as plain text, with the use of the time between two readings."""
    state = TopState()
    state.take(*read(), time.monotonic())
    # A use per second needs two readings.
    time.sleep(seconds)
    screen = state.take(*read(), time.monotonic())
    # Wide enough for all columns: a pipe has no width.
    console = Console(width=240, color_system=None)
    console.print(picture(screen, Drawing.on(console), keys=False))


def follow(read: Read, seconds: float) -> None:
    """Redraw it every so many seconds, until `q` or Ctrl-C; other keys sort."""
    state = TopState()
    with keys() as pressed, Live(auto_refresh=False, screen=True) as live:
        while True:
            found, until = read(), time.monotonic() + seconds
            screen = state.take(*found, time.monotonic())
            while True:
                live.update(picture(screen, Drawing.on(live.console), keys=True), refresh=True)
                key = pressed(max(0.0, until - time.monotonic()))
                if key in {"q", "Q"}:
                    return
                if key in ORDERS:
                    state.order = key
                    screen = state.screen(*found)
                elif time.monotonic() >= until:
                    break
