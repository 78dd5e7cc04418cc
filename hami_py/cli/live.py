"""``hami ps --watch`` on a terminal: the table, drawn again and again in its place, in colours."""

import time
from collections.abc import Callable, Sequence
from typing import NoReturn

from rich.live import Live
from rich.text import Text

from hami_py.cli.overview import Busy, lines
from hami_py.cli.pace import Pace
from hami_py.model import SliceInfo, SliceState

STYLES: dict[SliceState, str] = {
    "running": "green",
    "kept": "cyan",
    "ending": "yellow",
    "damaged": "red",
}
NEARLY = 0.9
"""Part of the limit from where on it is shown as nearly used up."""


def watch(look: Callable[[], Sequence[SliceInfo]], processes: bool, seconds: float) -> NoReturn:
    """Draw what is seen every so many seconds, until Ctrl-C."""
    pace = Pace()
    with Live(auto_refresh=False) as live:
        while True:
            slices = look()
            busy = pace.since_last(slices, time.monotonic())
            live.update(drawn(slices, processes, busy), refresh=True)
            time.sleep(seconds)


def drawn(slices: Sequence[SliceInfo], processes: bool, busy: Busy) -> Text:
    """The lines in colours; one that is too long for the terminal is cut off."""
    head, *others = lines(slices, processes, busy)
    used, limit = head.text.index("USED"), head.text.index("LIMIT")
    state, command = head.text.index("STATE"), head.text.index("COMMAND")
    texts = [Text(head.text, style="bold")]
    for line in others:
        text = Text(line.text)
        if line.state:
            text.stylize(STYLES[line.state], state, command)
        if line.fullness >= NEARLY:
            text.stylize("red" if line.fullness > 1 else "yellow", used, limit)
        texts.append(text)
    together = Text("\n").join(texts)
    together.no_wrap, together.overflow = True, "ellipsis"
    return together
