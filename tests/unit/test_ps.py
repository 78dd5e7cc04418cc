"""``hami ps``: its list, and its watch."""

import contextlib
import json
import os
import pty
import pwd
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hami_py
from hami_py import SliceCard, SliceInfo, SliceProcess, Use
from hami_py.cli.live import drawn
from hami_py.cli.output import legible_command
from hami_py.cli.ps_table import Key, lines, rated
from hami_py.cli.values import ago, approximate, duration
from hami_py.config import Settings
from hami_py.model import Rates
from hami_py.slices import list_slices
from support.namespaces import IN_A_NAMESPACE
from support.programs import Programs
from support.requirements import skip_or_fail
from support.running import Started, run
from support.slices import MIB
from support.stub import StubServer
from unit import machine
from unit.machine import HOLD, Hami, environment, listed, refused

Slices = Callable[[], list[Path]]

HEADS = ["NAME", "ID", "CARD", "USED", "DRIVER", "LIMIT", "SHARE", "GPU", "TIME"]
HEADS += ["LAST", "USED", "PROCESSES", "STATE", "USER", "COMMAND"]


# Listing.


def test_an_empty_list_has_its_headings(hami: Hami) -> None:
    assert hami("ps").stdout.split() == HEADS
    assert listed(hami) == []


def test_a_running_slice(hami: Hami, running: Callable[..., Started]) -> None:
    with running("run", "--name", "train", "--gpumem", "1=4GiB", "--", *HOLD) as first:
        (slice_,) = listed(hami)
        assert slice_["name"] == "train"
        assert slice_["state"] == "running"
        assert slice_["keep"] is False
        assert slice_["command"] == HOLD
        assert slice_["damage"] is None
        assert slice_["created"].startswith("20")
        assert Path(slice_["directory"]).name == slice_["id"]
        assert [
            (card["uuid"], card["index"], card["memory_limit"], card["memory_used"])
            for card in slice_["cards"]
        ] == [(machine.CARDS[0].uuid, 0, None, 0), (machine.CARDS[1].uuid, 1, 4 << 30, 0)]
        (process,) = slice_["processes"]
        assert process["command"] == HOLD
        assert Path(f"/proc/{process['pid']}/cmdline").read_bytes().split(b"\0")[0] == b"sh"

        head, first_card, second_card = hami("ps").stdout.splitlines()
        assert head.split() == HEADS
        id_ = slice_["id"][:12]
        user = pwd.getpwuid(os.getuid()).pw_name
        assert slice_["user"] == process["user"] == user
        assert re.sub(" +", " ", first_card) == (
            f"train {id_} 0 0B - - - - - 1 running {user} sh -c 'echo up; read _'"
        )
        assert second_card.split() == ["1", "0B", "-", "4GiB", "-", "-", "-"]
        told = hami("ps", "-p").stdout.splitlines()[-1]
        assert told == f"  {process['pid']}  {user}  no GPU memory  sh -c 'echo up; read _'"
        first.finish()
    assert listed(hami) == []


def test_memory_is_listed_by_process_and_card_as_in_the_ledger(
    stub: StubServer, program: Programs
) -> None:
    variables = {"PATH": os.environ["PATH"], **config_of(stub)}
    command = [sys.executable, "-m", "hami_py"]
    hold = [str(program("hold")), "100", "1"]
    with Started([*command, "run", "--gpumem", "1GiB", "--", *hold], variables) as holder:
        holder.wait_for("holding")
        (slice_,) = json.loads(run([*command, "ps", "--json"], variables).out)
        assert [card["memory_used"] for card in slice_["cards"]] == [stub.held(0), stub.held(1)]
        assert stub.held(1) == 100 * MIB
        ((pid, cards),) = [(p["pid"], p["cards"]) for p in slice_["processes"]]
        times = {"engine_time": 0, "throttled": 0, "debt": 0, "last_used": None}
        held = {
            "uuid": stub.uuids()[1],
            "memory_used": 100 * MIB,
            "refusals": 0,
            "driver_memory": 0,
        }
        assert cards == [{**held, **times}]
        text = run([*command, "ps", "--processes"], variables).out
        assert re.search(rf"^  {pid}  \S+  card 1: 100MiB  \S*hold 100 1$", text, re.MULTILINE)
        assert re.search(r"^ +1 +100MiB +- +1GiB +- +- +-$", text, re.MULTILINE)


def test_a_process_in_its_own_pid_namespace_is_listed_once_as_the_machine_sees_it(
    stub: StubServer, program: Programs
) -> None:
    if run([*IN_A_NAMESPACE, "true"], {}).code:
        skip_or_fail("no PID namespace can be made here")
    variables = {"PATH": os.environ["PATH"], **config_of(stub)}
    command = [sys.executable, "-m", "hami_py"]
    hold = [str(program("hold")), "100"]
    with Started([*command, "run", "--", *IN_A_NAMESPACE, *hold], variables) as holder:
        holder.wait_for("holding")
        (slice_,) = json.loads(run([*command, "ps", "--json"], variables).out)
        pids = {tuple(p["command"]): p["pid"] for p in slice_["processes"]}
        assert pids.keys() == {(*IN_A_NAMESPACE, *hold), tuple(hold)}
        assert len(slice_["processes"]) == 2
        (process,) = [p for p in slice_["processes"] if p["command"] == hold]
        assert process["user"] == pwd.getpwuid(os.getuid()).pw_name
        assert [use["memory_used"] for use in process["cards"]] == [100 * MIB]
        # By the kernel, which wrote it.
        line = Path(f"/proc/{process['pid']}/cmdline").read_bytes()
        assert line.split(b"\0")[:-1] == [os.fsencode(word) for word in hold]


def config_of(stub: StubServer) -> dict[str, str]:
    names = ("HAMI_RUNTIME_DIR", "HAMI_LIBRARY")
    return {**stub.env, **{name: os.environ[name] for name in names}}


def test_refusals_are_listed(stub: StubServer, start: Callable[..., Any]) -> None:
    with hami_py.slice(gpumem="100MiB", devices=["0"]) as s:
        probe = start(s, "probe")
        probe.stdin.write("101 0\n")
        probe.stdin.flush()
        assert probe.stdout.readline() == "2\n"
        (slice_,) = hami_py.list_slices()
        assert slice_.cards == (
            hami_py.SliceCard(uuid=stub.uuids()[0], index=0, memory_limit=100 * MIB, refusals=1),
        )
        (process,) = slice_.processes
        assert process.cards == (hami_py.Use(uuid=stub.uuids()[0], refusals=1),)
        assert process.pid == probe.pid


def test_without_a_driver_the_slices_are_listed_all_the_same(
    settings: Settings, hami: Hami, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_driver() -> list[hami_py.Card]:
        raise hami_py.NoDriver("NVML", "no", "install it")

    assert hami("run", "--keep", "--device", "1", "--device", "0", "--", "true").returncode == 0
    from hami_py import gpu

    monkeypatch.setattr(gpu, "cards", no_driver)
    (slice_,) = list_slices(settings)
    assert [card.index for card in slice_.cards] == [1, 0]


def test_the_index_of_a_card_is_the_machines_also_for_a_slice_in_a_slice(hami: Hami) -> None:
    inner = [sys.executable, str(Path(machine.__file__)), "run", "--keep", "--device", "0"]
    done = hami("run", "--name", "outer", "--device", "1", "--", *inner, "--", "true")
    assert done.returncode == 0, done.stderr
    (left,) = listed(hami)
    assert [card["index"] for card in left["cards"]] == [1]


def test_inside_a_slice_the_list_is_the_same(hami: Hami) -> None:
    inner = [sys.executable, str(Path(machine.__file__)), "ps", "--json"]
    (slice_,) = json.loads(hami("run", "--name", "outer", "--", *inner).stdout)
    assert (slice_["name"], slice_["state"]) == ("outer", "running")


def test_the_text_of_a_command_cannot_break_the_table() -> None:
    assert legible_command(["a b", "c\n  d\x1b[31m", "\udcff"]) == "'a b' 'c d�[31m' '�'"


@pytest.mark.parametrize(
    ("memory", "text"),
    [
        (0, "0B"),
        (512, "512B"),
        (1 << 20, "1MiB"),
        (1536 << 20, "1.5GiB"),
        (320 << 20, "320MiB"),
        (1023 << 20, "1023MiB"),
        (1 << 30, "1GiB"),
        ((1 << 30) + 1, "1.0GiB"),
        (80 << 30, "80GiB"),
        (1500 << 30, "1500GiB"),
    ],
)
def test_memory_is_shown_in_comparable_units(memory: int, text: str) -> None:
    assert approximate(memory) == text


# Shares.


def share_of(uuid: str, **told: Any) -> SliceCard:
    return SliceCard(uuid=uuid, index=0, memory_limit=4 << 30, **told)


def key(uuid: str) -> Key:
    """Of the slice on a card."""
    return "", "train", "", uuid


def slice_with(*cards: SliceCard, processes: tuple[SliceProcess, ...] = ()) -> SliceInfo:
    """One that is running, with what is told of its cards."""
    return SliceInfo(
        "ab" * 16, "train", Path("/s"), "running", False, None, ("x",), cards, processes, None
    )


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ({}, "-"),
        ({"share": 30}, "30%"),
        ({"share": 30, "mode": "soft"}, "30% soft"),
        ({"share": 5, "mode": "soft", "priority": "low"}, "5% soft low"),
        ({"priority": "high"}, "high"),
        # Without a share the mode says nothing.
        ({"mode": "soft"}, "-"),
    ],
)
def test_a_share_is_shown_with_mode_and_priority(told: dict[str, Any], shown: str) -> None:
    head, line = lines([slice_with(share_of("GPU-1", **told))], processes=False)
    column = slice(head.text.index("SHARE"), head.text.index("GPU TIME"))
    assert line.text[column].strip() == shown


def test_engine_time_is_shown_by_card_and_process() -> None:
    held = (
        Use(
            uuid="GPU-1",
            memory_used=100 * MIB,
            refusals=2,
            engine_time=61.0,
            throttled=0.25,
            debt=0.1,
        ),
        Use(uuid="GPU-2", engine_time=0.05),
    )
    told = slice_with(
        share_of("GPU-1", share=30, engine_time=61.0),
        share_of("GPU-2", engine_time=0.0),
        processes=(SliceProcess(7, ("x",), held, user="ada"),),
    )
    # Of a card that was never used no percent says more.
    shares = {key("GPU-1"): 0.296, key("GPU-2"): 0.0}
    head, first, second, process = lines([told], processes=True, shares=shares)
    column = slice(head.text.index("GPU TIME"), head.text.index("LAST USED"))
    assert [line.text[column].strip() for line in (first, second)] == ["1m01s (30%)", "-"]
    assert process.text == (
        "  7  ada  card 0: 100MiB (2 refused, engine time 1m01s, throttled 0.2s, debt 0.1s),"
        " card 0: 0B (engine time <0.1s)  x"
    )


def test_an_unmeasured_card_is_not_shown_as_idle() -> None:
    """Its share was removed, so its engine time is no longer measured."""
    told = slice_with(
        share_of("GPU-0", engine_time=1.8),
        share_of("GPU-1", engine_time=1.8, share=30),
        share_of("GPU-2", engine_time=1.8),
    )
    shares = {key("GPU-0"): 0.0, key("GPU-1"): 0.0, key("GPU-2"): 0.2}
    head, *cards = lines([told], processes=False, shares=shares)
    column = slice(head.text.index("GPU TIME"), head.text.index("LAST USED"))
    assert [line.text[column].strip() for line in cards] == ["1.8s", "1.8s (0%)", "1.8s (20%)"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "-"),
        (0.01, "<0.1s"),
        (0.1, "0.1s"),
        (0.35, "0.3s"),
        (59.99, "59.9s"),
        (60, "1m00s"),
        (125.9, "2m05s"),
        (3600, "1h00m"),
        (90_061, "25h01m"),
    ],
)
def test_durations_are_shown_in_comparable_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_used_share_is_measured_between_two_readings() -> None:
    rates = Rates[Key]()

    def look(now: float, **times: float) -> dict[str, float | None]:
        cards = [share_of(uuid, engine_time=time) for uuid, time in times.items()]
        shares = rated(rates, [slice_with(*cards)] if cards else [], now)
        return {uuid: share for (*_, uuid), share in shares.items()}

    assert look(100.0, a=7.0) == {"a": None}
    assert look(102.0, a=7.5, b=3.0) == {"a": 0.25, "b": None}
    # A process's time may for one look be counted in neither place.
    assert look(103.0, a=7.0, b=3.0) == {"a": 0.0, "b": 0.0}
    assert look(103.0, a=7.0) == {"a": 0.0}, "no time has passed"
    # The clocks of card and machine are read one after the other.
    assert look(104.0, a=8.1) == {"a": 1.0}
    assert look(104.5) == {}
    assert look(105.0, a=9.0) == {"a": None}


def test_a_reading_that_comes_early_is_not_compared() -> None:
    rates = Rates[str](1.0)
    assert rates.take([("a", 1.0, 0.0)]) == {"a": None}
    assert rates.take([("a", 1.5, 0.4)]) == {"a": None}
    assert rates.take([("a", 3.0, 1.0)]) == {"a": 0.5}
    assert rates.take([("a", 3.9, 1.9)]) == {"a": 0.5}


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.5, "now"), (12.3, "12s"), (125, "2m05s"), (3700, "1h01m")]
)
def test_a_time_is_shown_by_its_age(seconds: float, text: str) -> None:
    assert ago(time.time() - seconds) == text
    head, line = lines([slice_with(share_of("a", last_used=time.time() - seconds))], False)
    column = slice(head.text.index("LAST USED"), head.text.index("PROCESSES"))
    assert line.text[column].strip() == text


def test_shares_are_listed_for_programs(hami: Hami) -> None:
    options = ["--gpucores", "1=30", "--mode", "soft", "--priority", "high", "--keep"]
    hami("run", *options, "--", "true")
    (slice_,) = listed(hami)
    names = ("share", "mode", "priority", "engine_time", "throttled", "debt")
    assert [[card[name] for name in names] for card in slice_["cards"]] == [
        [None, "soft", "high", 0.0, 0.0, 0.0],
        [30, "soft", "high", 0.0, 0.0, 0.0],
    ]


# Watching.


def test_watch_through_a_pipe_repeats_the_table(
    runtime: Path, running: Callable[..., Started]
) -> None:
    with running("run", "--name", "train", "--", *HOLD):
        watching = machine.command("ps", "--json", "--watch", "0.1")
        with Started(watching, environment(runtime)) as watch:
            for _ in range(3):
                (slice_,) = json.loads(watch.next_line())
                assert slice_["name"] == "train"
            os.kill(watch.pid, signal.SIGINT)
            done = watch.finish()
            assert (done.code, done.err) == (0, "")
        with Started(machine.command("ps", "--watch", "0.1"), environment(runtime)) as watch:
            lines = [watch.next_line().split() for _ in range(6)]
            # One line for each of the two cards.
            assert [line[0] for line in lines] == ["NAME", "train", "1"] * 2


@pytest.mark.parametrize("key", [b"\x03", b"q"])
def test_watch_on_a_terminal_redraws_until_ctrl_c_or_q(
    runtime: Path, hami: Hami, key: bytes
) -> None:
    hami("run", "--name", "train", "--keep", "--gpumem", "4GiB", "--", "true")
    pid, terminal = pty.fork()
    if pid == 0:
        variables = environment(runtime, TERM="xterm", COLUMNS="80", LINES="24")
        os.execve(sys.executable, machine.command("ps", "--watch", "0.1"), variables)  # noqa: S606
    seen, status = "", None
    try:
        while seen.count("train") < 3:
            seen += os.read(terminal, 4096).decode()
        assert "4GiB" in seen
        # At 80 columns these were never visible.
        assert "kept" in seen
        assert "COMMAND" in seen
        os.write(terminal, key)
        # The rest of the output has to be read, or the program could not end.
        with contextlib.suppress(OSError):
            while more := os.read(terminal, 4096):
                seen += more.decode()
        status = os.waitpid(pid, 0)[1]
    finally:
        if status is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0
    assert "Traceback" not in seen
    # The cursor is given back.
    assert seen.rindex("\x1b[?25h") > seen.rindex("\x1b[?25l")
    # A screen of its own, so that no frame stays when the window is resized.
    assert seen.index("\x1b[?1049h") < seen.index("train") < seen.rindex("\x1b[?1049l")


def test_lines_without_room_are_counted(settings: Settings, hami: Hami) -> None:
    for number in range(3):
        hami("run", "--name", f"train{number}", "--keep", "--", "true")
    slices = list_slices(settings)
    whole = drawn(slices, False, {}).plain.splitlines()
    assert len(whole) == 7
    assert drawn(slices, False, {}, 200, 7).plain.splitlines() == whole
    assert drawn(slices, False, {}, 200, 5).plain.splitlines() == [*whole[:4], "… 3 more lines"]
    narrow = drawn(slices, False, {}, 60, 7).plain.splitlines()
    assert narrow[0].split()[:3] == ["NAME", "CARD", "USED"]
    assert narrow[0].index("COMMAND") < 60


@pytest.mark.parametrize("seconds", ["0", "x", "nan", "inf", "1e300"])
@pytest.mark.parametrize("command", ["ps --watch", "top --interval", "inspect --watch"])
def test_a_bad_interval_is_refused(hami: Hami, command: str, seconds: str) -> None:
    name, option = command.split()
    refused(hami(name, f"{option}={seconds}"), 2, option)


def test_a_closed_pipe_ends_the_watch_quietly(hami: Hami) -> None:
    done = hami("ps", "--watch", "0.1", around=["sh", "-c", '"$@" | head -n 1', "sh"])
    assert (done.stdout.split(), done.stderr) == (HEADS, "")
