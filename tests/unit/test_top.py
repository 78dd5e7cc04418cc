"""``hami top``: what it shows of the last minute, and its keys on a terminal."""

import os
import pty
import re
import select
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from rich.console import Console

from hami_py.cli.top_state import CardState, Row, TopState, rows_of_own
from hami_py.cli.top_view import Drawing, picture
from hami_py.model import Card, CardUsage
from unit import machine
from unit.machine import CARDS, GIB, Hami

CARD = Card(0, "GPU-a", "NVIDIA A100", 40 * GIB)


def row(name: str = "train", *, used: int = GIB, engine_s: float = 0.0, refusals: int = 0) -> Row:
    key = (name, "GPU-a")
    return Row(key, name, 0, used, 4 * GIB, "30% hard", engine_s, 0.0, refusals, 1, "python [x] y")


def text(state: TopState, *rows: Row, now_s: float, width: int = 200, used: int = GIB) -> str:
    screen = state.take([CardState(CARD, used)], rows, now_s)
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(picture(screen, Drawing.on(console), keys=True))
    return captured.get()


def test_the_used_part_of_the_time_is_that_between_two_readings() -> None:
    state = TopState()
    first = text(state, row(engine_s=5.0), now_s=10.0)
    assert re.search(r"30% hard +- ", first), "one reading has no rate"
    assert re.search(r"30% hard +25% ", text(state, row(engine_s=5.5), now_s=12.0))
    # A process has ended, and its time counts nowhere for a moment.
    assert re.search(r"30% hard +0% ", text(state, row(engine_s=1.0), now_s=13.0))


def test_a_minute_is_kept() -> None:
    state = TopState()
    for second in range(200):
        screen = state.take([CardState(CARD, GIB)], [row(engine_s=second / 2)], float(second))
    (_, history), (_, memory) = screen.rows[0], screen.cards[0]
    assert (len(history), set(history)) == (60, {0.5})
    assert len(memory) == 60


def test_a_slice_that_is_removed_is_forgotten() -> None:
    state = TopState()
    state.take([], [row("a", engine_s=1.0)], 1.0)
    state.take([], [], 2.0)
    screen = state.take([], [row("a", engine_s=9.0)], 3.0)
    assert not screen.rows[0][1]


@pytest.mark.parametrize(("key", "names"), [("n", "abc"), ("m", "cab"), ("g", "bca"), ("r", "acb")])
def test_the_keys_sort(key: str, names: str) -> None:
    state = TopState(key)
    used, time_s, refusals = {"a": 2, "b": 1, "c": 3}, {"a": 0, "b": 1, "c": 0.5}, {"a": 2, "c": 1}
    state.take([], [row(name) for name in "abc"], 0.0)
    rows = [
        row(name, used=used[name], engine_s=time_s[name], refusals=refusals.get(name, 0))
        for name in "abc"
    ]
    screen = state.take([], rows, 1.0)
    assert "".join(each.name for each, _ in screen.rows) == names


def test_bars_and_lines_are_ascii_where_nothing_else_can_be_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = TopState()
    state.take([], [row()], 0.0)
    unicode = text(state, row(engine_s=0.5), now_s=1.0)
    assert "█" in unicode
    assert "▄" in unicode
    monkeypatch.setattr(Console, "encoding", "ascii")
    plain = text(state, row(engine_s=1.0), now_s=2.0)
    assert plain.isascii()
    assert "#####..............." in plain


def test_the_text_of_a_command_is_not_markup() -> None:
    assert "python [x] y" in text(TopState(), row(), now_s=0.0)


def test_a_narrow_terminal_has_no_broken_lines() -> None:
    lines = text(TopState(), row(), row("other"), now_s=0.0, width=40).splitlines()
    assert max(map(len, lines)) <= 40


def test_inside_a_container_the_slice_has_the_cards_index() -> None:
    usage = CardUsage("GPU-a", 4 * GIB, GIB, 3 * GIB, 2, (), share=30, throttled=1.5)
    (own,) = rows_of_own([usage], [Card(3, "GPU-a", "NVIDIA A100", 40 * GIB)])
    assert (own.name, own.card, own.used, own.limit) == ("this container", 3, GIB, 4 * GIB)
    assert (own.regime, own.throttled_s, own.refusals) == ("30%", 1.5, 2)


def test_through_a_pipe_it_is_one_text(hami: Hami) -> None:
    hami("run", "--name", "train", "--keep", "--gpumem", "4GiB", "--", "true")
    done = hami("top", "--interval", "0.1")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert CARDS[0].name in done.stdout
    assert re.search(r"train +0 +0B/4GiB", done.stdout)


def test_on_a_terminal_keys_sort_and_quit(runtime: Path) -> None:
    ours, theirs = pty.openpty()
    command, environment = machine.command("top", "--interval", "0.2"), machine.environment(runtime)
    with (
        subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**environment, "TERM": "xterm"},
        ) as process,
        ExitStack() as ends,
    ):
        os.close(theirs)
        ends.callback(process.kill)
        _until(ours, b"sorted by name")
        os.write(ours, b"m")
        _until(ours, b"sorted by memory")
        os.write(ours, b"\x1b[A")
        os.write(ours, b"q")
        _until(ours, None)
        assert process.wait(machine.DEADLINE) == 0
    os.close(ours)


def _until(terminal: int, wanted: bytes | None) -> None:
    """Read until this was written; ``None``: until the end."""
    seen, deadline = b"", time.monotonic() + machine.DEADLINE
    while wanted is None or wanted not in seen:
        left = max(0.0, deadline - time.monotonic())
        ready, _, _ = select.select([terminal], [], [], left)
        assert ready and left, seen
        try:
            seen += os.read(terminal, 1 << 16)
        except OSError:
            assert wanted is None, seen
            return
