"""``hami top``: what it shows of the last minute, and its keys on a terminal."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hami_py.cli.top_state import (
    Reading,
    Screen,
    TopState,
    rows_of,
    rows_of_own,
)
from hami_py.cli.top_view import Drawing, picture
from hami_py.model import Card, CardUsage, NodeCard, ProcessUsage, SliceCard, SliceInfo, SliceUse
from unit import machine
from unit.machine import CARDS, GIB, Hami

CARD = NodeCard("GPU-a", 0, "NVIDIA A100", 40 * GIB, GIB)


def card(uuid: str = "GPU-a", **more: Any) -> SliceCard:
    figures = {"index": 0, "memory_limit": 4 * GIB, "memory_used": GIB, "share": 30, **more}
    return SliceCard(uuid=uuid, **figures)


def row(name: str = "train", **use: Any) -> SliceUse:
    command, user = "python [x] y", "ada"
    return SliceUse(use=card(**use), pod=name, processes=1, user=user, command=command)


def text(state: TopState, *rows: SliceUse, now_s: float, width: int = 200, used: int = GIB) -> str:
    screen = state.take(Reading([replace(CARD, memory_used=used)], rows), now_s)
    return printed(screen, width)


def printed(screen: Screen, width: int, height: int | None = None) -> str:
    console = Console(width=width, color_system=None)
    drawn = picture(screen, Drawing.on(console), keys=True, width=width, height=height)
    with console.capture() as captured:
        console.print(drawn)
    return captured.get()


def test_the_used_part_of_the_time_is_that_between_two_readings() -> None:
    state = TopState()
    first = text(state, row(engine_time=5.0), now_s=10.0)
    assert re.search(r"30% +- ", first), "one reading has no rate"
    assert re.search(r"30% +25% ", text(state, row(engine_time=5.5), now_s=12.0))


def test_a_slice_without_a_share_is_not_shown_as_idle() -> None:
    """Its engine time may no longer be measured."""
    state = TopState()
    for now_s, engine_s, shown in ((10.0, 5.0, "-"), (12.0, 5.5, "25%"), (14.0, 5.5, "-")):
        found = text(state, row(share=None, engine_time=engine_s), now_s=now_s)
        assert re.search(rf"^train .* - +{shown} ", found, re.MULTILINE), found
    screen = state.screen(Reading([], [row(share=None)]))
    assert [*screen.rows[0][1]] == [0.25]


def test_a_minute_is_kept() -> None:
    state = TopState()
    for second in range(200):
        reading = Reading([CARD], [row(engine_time=second / 2)])
        screen = state.take(reading, float(second))
    (_, history), (_, memory) = screen.rows[0], screen.cards[0]
    assert (len(history), set(history)) == (60, {0.5})
    assert len(memory) == 60


def test_a_slice_that_is_removed_is_forgotten() -> None:
    state = TopState()
    state.take(Reading([], [row("a", engine_time=1.0)]), 1.0)
    state.take(Reading([], []), 2.0)
    screen = state.take(Reading([], [row("a", engine_time=9.0)]), 3.0)
    assert not screen.rows[0][1]


@pytest.mark.parametrize(("key", "names"), [("n", "abc"), ("m", "cab"), ("g", "bca"), ("r", "acb")])
def test_the_keys_sort(key: str, names: str) -> None:
    state = TopState(key)
    used, time_s, refusals = {"a": 2, "b": 1, "c": 3}, {"a": 0, "b": 1, "c": 0.5}, {"a": 2, "c": 1}
    state.take(Reading([], [row(name) for name in "abc"]), 0.0)
    rows = [
        row(name, memory_used=used[name], engine_time=time_s[name], refusals=refusals.get(name, 0))
        for name in "abc"
    ]
    screen = state.take(Reading([], rows), 1.0)
    assert "".join(each.pod for each, _ in screen.rows) == names


def test_bars_and_lines_are_ascii_where_nothing_else_can_be_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = TopState()
    state.take(Reading([], [row()]), 0.0)
    unicode = text(state, row(engine_time=0.5), now_s=1.0)
    assert "█" in unicode
    assert "▄" in unicode
    monkeypatch.setattr(Console, "encoding", "ascii")
    plain = text(state, row(engine_time=1.0), now_s=2.0)
    assert plain.isascii()
    assert "#####..............." in plain
    for width in (40, 80):
        assert printed(screen(), width, 20).isascii()


def test_the_text_of_a_command_is_not_markup() -> None:
    assert "python [x] y" in text(TopState(), row(), now_s=0.0)


def test_a_narrow_terminal_has_no_broken_lines() -> None:
    lines = text(TopState(), row(), row("other"), now_s=0.0, width=40).splitlines()
    assert max(map(len, lines)) <= 40


NAMES = ("train-resnet50", "notebook", "serve_llama-70b.v2")
COMMAND = "python -m torch.distributed.run train.py --config configs/resnet50/large.yaml"


def screen() -> Screen:
    """Two cards, three slices, one of them on both cards, and 30 processes."""
    model = "NVIDIA A100-SXM4-80GB"
    cards = [NodeCard(f"GPU-{i}", i, model, 80 * GIB, 33 * GIB) for i in range(2)]
    rows = [
        SliceUse(
            use=card(
                f"GPU-{index}",
                index=index,
                memory_limit=40 * GIB,
                memory_used=21 * GIB // 2,
                refusals=3,
                mode="soft",
                priority="high",
                engine_time=1.0,
                throttled=62.0,
                last_used=time.time() - 3700,
            ),
            pod=name,
            processes=2,
            user="alice",
            command=COMMAND,
        )
        for name, index in ((NAMES[0], 0), (NAMES[0], 1), (NAMES[1], 0), (NAMES[2], 1))
    ]
    processes = [
        [str(4_100_000 + i), str(i % 2), "alice", "3.3GiB", NAMES[0], COMMAND] for i in range(30)
    ]
    state = TopState()
    for second in range(70):
        taken = state.take(Reading(cards, rows, processes, ["a message"]), float(second))
    return taken


@pytest.mark.parametrize("width", range(40, 201))
def test_names_cards_memory_and_shares_are_whole_at_every_width(width: int) -> None:
    lines = printed(screen(), width).splitlines()
    assert max(map(len, lines)) <= width
    if width < 80:
        return
    shown = [line.rstrip() for line in lines]
    heads = next(line for line in shown if line.startswith("NAME"))
    for head in ("NAME", "CARD", "USED/LIMIT", "SHARE", "GPU TIME"):
        assert head in heads
    rows = [line for line in shown if line.startswith(NAMES)]
    expected = [(NAMES[1], 0), (NAMES[2], 1), (NAMES[0], 0), (NAMES[0], 1)]
    assert len(rows) == 4
    for (name, card), line in zip(expected, rows, strict=True):
        assert re.match(rf"{re.escape(name)} +{card} +10.5GiB/40GiB +", line), line
        assert re.search(r" 30% soft high +0%( |$)", line), line
    for card in range(2):
        assert any(re.match(rf"{card} +NVIDIA A100-\S+ +33GiB/80GiB ", line) for line in shown)
    assert any(re.match(r"4100000 +0 +alice +3.3GiB ", line) for line in shown)


def test_the_command_becomes_shorter_before_a_column_is_left_out() -> None:
    heads = {
        width: next(line for line in printed(screen(), width).splitlines() if "NAME" in line)
        for width in (110, 200)
    }
    assert "MEMORY" not in heads[110]
    assert "LAST MINUTE" not in heads[110]
    assert all(head in heads[110] for head in ("THROTTLED", "REFUSED", "PROCESSES", "COMMAND"))
    assert all(head in heads[200] for head in ("MEMORY", "LAST MINUTE", "COMMAND", "USER"))
    wide = next(line for line in printed(screen(), 200).splitlines() if line.startswith(NAMES))
    assert re.search(r" 3 +1h01m +2 +alice +python -m", wide), wide


@pytest.mark.parametrize("height", range(3, 60))
def test_a_low_terminal_keeps_the_slices_and_the_keys(height: int) -> None:
    lines = printed(screen(), 80, height).splitlines()
    assert len(lines) <= height
    assert lines[-1].startswith("sorted by name")
    if height >= 24:
        assert sum(line.startswith(NAMES) for line in lines) == 4
        assert sum("alice" in line for line in lines) >= 5
    # What is cut is named. In 12 lines, the slices leave no line for that.
    if 6 <= height < 44 and height != 12:
        assert any(re.fullmatch(r"\d+ more lines *", line) for line in lines)


def test_a_long_name_takes_the_room_that_others_leave() -> None:
    name = "n" * 63
    lines = text(TopState(), row(name), now_s=0.0, width=80).splitlines()
    (line,) = [line for line in lines if line.startswith("nnn")]
    assert re.match(r"n{23}… +0 +1GiB/4GiB +30%", line), line


def test_inside_a_container_the_slice_has_the_cards_index_and_living_processes() -> None:
    processes = tuple(
        ProcessUsage(uuid="GPU-a", pid=pid, alive=alive)
        for pid, alive in ((7, True), (8, False), (9, True))
    )
    usage = CardUsage(uuid="GPU-a", memory_limit=4 * GIB, throttled=1.5, processes=processes)
    (own,) = rows_of_own([usage], [Card(3, "GPU-a", "NVIDIA A100", 40 * GIB)])
    assert (own.pod, own.use) == ("this container", replace(usage, index=3))
    assert own.processes == 2, "one has ended"


def test_cards_that_a_slice_does_not_use_are_left_out() -> None:
    cards = [card(f"GPU-{i}", index=i, memory_used=GIB if i == 5 else 0) for i in range(8)]

    def shown(*of: SliceCard) -> list[int | None]:
        info = SliceInfo("a", None, Path("/"), "running", False, None, (), of, (), None)
        return [each.use.index for each in rows_of([info])]

    assert shown(*cards) == [5]
    assert shown(*cards[:2]) == [0, 1]


def test_inside_a_slice_it_is_listed_once(hami: Hami) -> None:
    top = [sys.executable, str(Path(machine.__file__)), "top", "--interval", "0.1"]
    done = hami("run", "--name", "outer", "--gpumem", "4GiB", "--", *top)
    assert done.returncode == 0, done.stderr
    assert "outer" in done.stdout
    assert "this container" not in done.stdout


def test_through_a_pipe_it_is_one_text(hami: Hami) -> None:
    hami("run", "--name", "train", "--keep", "--gpumem", "4GiB", "--", "true")
    done = hami("top", "--interval", "0.1")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert CARDS[0].name in done.stdout
    assert re.search(r"train +0 +0B/4GiB", done.stdout)


def test_on_a_terminal_keys_sort_and_quit(runtime: Path) -> None:
    with _on_terminal(runtime, *machine.command("top", "--interval", "0.2")) as (process, ours):
        _until(ours, b"sorted by name")
        os.write(ours, b"m")
        _until(ours, b"sorted by memory")
        os.write(ours, b"\x1b[A")
        os.write(ours, b"q")
        _until(ours, None)
        assert process.wait(machine.DEADLINE) == 0
    os.close(ours)


def test_it_ends_when_its_terminal_is_closed(runtime: Path) -> None:
    """Without SIGHUP, as behind ``setsid``: it read the end of the input in a loop."""
    top = machine.command("top", "--interval", "60")
    with _on_terminal(runtime, "setsid", *top) as (process, ours):
        _until(ours, b"sorted by name")
        os.close(ours)
        process.wait(machine.DEADLINE)


@contextmanager
def _on_terminal(runtime: Path, *command: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A program on a terminal of its own, and our end of the terminal, which the caller closes."""
    ours, theirs = pty.openpty()
    environment = {**machine.environment(runtime), "TERM": "xterm"}
    with (
        subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
        ) as process,
        ExitStack() as ends,
    ):
        os.close(theirs)
        ends.callback(process.kill)
        yield process, ours


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
