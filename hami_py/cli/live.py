"""``hami ps --watch`` on a terminal: the table in colours, redrawn in place.

A module of its own, because importing rich takes longer than the rest of ``hami``.
"""

import time
from collections.abc import Callable, Sequence
from typing import NoReturn

from rich.live import Live
from rich.text import Text

from hami_py.cli.ps_table import Busy, UsageRate, lines
from hami_py.model import SliceInfo, SliceState

STYLES: dict[SliceState, str] = {
    "running": "green",
    "kept": "cyan",
    "ending": "yellow",
    "damaged": "red",
}
NEARLY_FULL = 0.9
"""The used part of a limit from which on it is highlighted."""


def watch(read: Callable[[], Sequence[SliceInfo]], processes: bool, seconds: float) -> NoReturn:
    """Redraw the table every so many seconds, until Ctrl-C."""
    rate = UsageRate()
    with Live(auto_refresh=False) as live:
        while True:
            slices = read()
            busy = rate.since_last(slices, time.monotonic())
            live.update(drawn(slices, processes, busy), refresh=True)
            time.sleep(seconds)


def drawn(slices: Sequence[SliceInfo], processes: bool, busy: Busy) -> Text:
    """The lines in colours; a line that is too long for the terminal is truncated."""
    head, *others = lines(slices, processes, busy)
    used, limit = head.text.index("USED"), head.text.index("LIMIT")
    state, command = head.text.index("STATE"), head.text.index("COMMAND")
    texts = [Text(head.text, style="bold")]
    for line in others:
        text = Text(line.text)
        if line.state:
            text.stylize(STYLES[line.state], state, command)
        if line.fullness >= NEARLY_FULL:
            text.stylize("red" if line.fullness > 1 else "yellow", used, limit)
        texts.append(text)
    together = Text("\n").join(texts)
    together.no_wrap, together.overflow = True, "ellipsis"
    return together
