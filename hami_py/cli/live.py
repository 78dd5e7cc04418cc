"""``--watch`` on a terminal, on a screen of its own; the table of ``hami ps`` in colours.

A module of its own, because importing rich takes longer than the rest of ``hami``.
"""

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import ConsoleDimensions
from rich.live import Live
from rich.text import Text

from hami_py.cli.ps_table import COLUMNS, Key, Line, Shares, lines, rated
from hami_py.model import Rates, SliceInfo, SliceState
from hami_py.model.columns import least_wanted

STYLES: dict[SliceState, str] = {
    "running": "green",
    "kept": "cyan",
    "ending": "yellow",
    "damaged": "red",
}
COMMAND_WIDTH = 12
"""Characters of a command that are worth more than another column."""

NEARLY_FULL = 0.9
"""The used part of a limit from which on it is highlighted."""


def watch(read: Callable[[], Sequence[SliceInfo]], processes: bool, seconds: float) -> None:
    """Redraw the table every so many seconds, until ``q`` or Ctrl-C."""
    rates = Rates[Key]()

    def draw(size: ConsoleDimensions) -> Text:
        slices = read()
        return drawn(slices, processes, rated(rates, slices, time.monotonic()), *size)

    _redraw(draw, seconds)


def watch_text(read: Callable[[], str], seconds: float) -> None:
    """Redraw a text every so many seconds, until ``q`` or Ctrl-C; long lines are truncated."""
    _redraw(lambda _: Text(read(), no_wrap=True, overflow="ellipsis"), seconds)


def _redraw(draw: Callable[[ConsoleDimensions], Text], seconds: float) -> None:
    # A screen of its own: what a smaller window would wrap does not stay.
    with keys() as pressed, Live(auto_refresh=False, screen=True) as live:
        while True:
            live.update(draw(live.console.size), refresh=True)
            if pressed(seconds) in {"q", "Q"}:
                return


@contextmanager
def keys() -> Iterator[Callable[[float], str]]:
    """Keys without Enter: a function that waits so many seconds for one; "" = none.

    A terminal that was closed counts as ``q``.
    """
    is_terminal = sys.stdin is not None and sys.stdin.isatty()
    file = sys.stdin.fileno() if is_terminal else -1

    def pressed(seconds: float) -> str:
        ready = select.select([file] if is_terminal else [], [], [], seconds)[0]
        return (os.read(file, 1).decode(errors="replace") or "q") if ready else ""

    if not is_terminal:
        yield pressed
        return
    before = termios.tcgetattr(file)
    tty.setcbreak(file)
    try:
        yield pressed
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)


def drawn(
    slices: Sequence[SliceInfo],
    processes: bool,
    shares: Shares,
    width: int = 1 << 10,
    height: int = 1 << 10,
) -> Text:
    """The lines in colours, as many columns and lines as the terminal has room for."""
    without: list[str] = []
    for key in ("", *least_wanted(COLUMNS[:-1])):
        without.append(key)
        head, *others = lines(slices, processes, shares, without)
        if head.text.index("COMMAND") + COMMAND_WIDTH <= width:
            break
    if len(others) >= height:
        more = len(others) - height + 2
        others = [*others[: -more or None], Line(f"… {more} more lines")]
    used, limit = head.text.index("USED"), head.text.index("LIMIT")
    state = head.text.index("STATE")
    texts = [Text(head.text, style="bold")]
    for line in others:
        text = Text(line.text)
        if line.state:
            text.stylize(STYLES[line.state], state, state + len(line.state))
        if line.fullness >= NEARLY_FULL:
            text.stylize("red" if line.fullness > 1 else "yellow", used, limit)
        texts.append(text)
    together = Text("\n").join(texts)
    together.no_wrap, together.overflow = True, "ellipsis"
    return together
