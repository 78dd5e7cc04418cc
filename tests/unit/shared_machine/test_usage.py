"""The lines of usage, with sweeps and clocks of this test."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hami_py.gpu.sweep import identity_of
from hami_py.machine import usage
from hami_py.machine.listener import Peer
from hami_py.machine.policy import Grant, Policy
from hami_py.machine.usage import UsageLine
from hami_py.model import LimitRequest
from support.running import Started
from unit.shared_machine.test_register import ALICE, GIB, Machine, me

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="the service runs as root")

HOUR = 3600.0


class Clock:
    """The clocks of the usage: seconds since boot, and the time of day."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.wall = usage._boot_time(), "2026-11-29T10:00:00.000+00:00"
        monkeypatch.setattr(usage, "_boot_time", lambda: self.now)
        monkeypatch.setattr(usage, "_wall", lambda ago_s=0.0: self.wall)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def machine(tmp_path: Path, clock: Clock) -> Machine:
    return Machine(tmp_path / "machine")


@pytest.fixture
def other() -> Iterator[Started]:
    with Started(["sleep", "60"], {}) as started:
        yield started


def lines(machine: Machine) -> list[dict[str, Any]]:
    files = sorted((machine.paths.state / "usage").glob("????-??.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def sweep(at_s: float, pid: int, memory: dict[str, int]) -> bytes:
    """A sweep that shows a process; ``at_s`` is in seconds of any clock."""
    identity = identity_of(pid)
    assert identity is not None
    assert identity.namespace is not None
    process = {
        "pid": pid,
        "pid_in_namespace": identity.pid_in_namespace,
        "namespace": {"device": 0, "inode": identity.namespace.inode},
        "start_time": identity.start_time,
        "memory": memory,
    }
    return json.dumps({"started_at": int(at_s * 1e9), "processes": [process]}).encode()


def create(machine: Machine, memory: int, share: int, name: str = "one") -> str:
    peer = Peer(os.getpid(), ALICE)
    wanted = LimitRequest(memory, share)
    slot, _ = machine.register.create(peer, wanted, devices=("0",), name=name, keep=True)
    machine.register.release(me(), name)
    return slot.name


def test_what_a_slice_reserves_follows_its_limits(machine: Machine, clock: Clock) -> None:
    clock.now = usage.time.clock_gettime(usage.time.CLOCK_BOOTTIME)
    slot = create(machine, 2 * GIB, 10)
    machine.usage.round()
    clock.now += HOUR
    machine.register.set_limits(me(), "one", LimitRequest(4 * GIB, 20))
    clock.now += HOUR
    machine.register.remove(me(), "one")
    clock.now += 10
    machine.usage.round()
    (line,) = lines(machine)
    assert (line["uid"], line["slice"], line["name"], line["kind"]) == (ALICE, slot, "one", "slice")
    assert line["reserved_gib_hours"] == pytest.approx(6.0, abs=0.01)
    assert line["reserved_card_hours"] == pytest.approx(0.3, abs=0.001)
    assert machine.usage.totals[str(ALICE)][1] == pytest.approx(0.3 * HOUR, abs=5)
    assert machine.ledger.entries == {}


def test_a_day_has_its_own_line(machine: Machine, clock: Clock) -> None:
    create(machine, 2 * GIB, 10)
    machine.usage.round()
    clock.now += HOUR
    clock.wall = "2026-11-30T00:00:00.400+00:00"
    machine.usage.round()
    clock.now += 2 * HOUR
    clock.wall = "2026-11-30T02:00:00.400+00:00"
    machine.usage.close()
    found = [(each["to"][:13], round(each["reserved_gib_hours"], 2)) for each in lines(machine)]
    assert found == [("2026-11-30T00", 2.0), ("2026-11-30T02", 4.0)]


def test_what_processes_hold_is_counted_for_their_user(
    machine: Machine, clock: Clock, other: Started
) -> None:
    """A process of root, which is in no slice."""
    for at, gib in enumerate((2, 2, 4)):
        machine.usage.sweep(sweep(100 + at * HOUR, other.pid, {"GPU-a": gib * GIB}))
    machine.usage.close()
    (line,) = lines(machine)
    assert (line["user"], line["slice"], line["kind"]) == ("root", "", "none")
    assert line["held_gib_hours"] == pytest.approx(2 + 3)
    assert line["held_peak_bytes"] == 4 * GIB


def test_a_program_that_starts_at_once_in_a_new_slice_is_counted(
    machine: Machine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = create(machine, 4 * GIB, 10)
    monkeypatch.setattr(machine.usage, "_owner", lambda _: slot)
    for at in (0.0, HOUR):
        machine.usage.sweep(sweep(100 + at, os.getpid(), {"GPU-a": 2 * GIB}))
    machine.usage.close()
    (line,) = lines(machine)
    assert (line["slice"], line["held_gib_hours"]) == (slot, pytest.approx(2.0))


def test_a_kill_at_any_moment_counts_nothing_twice(
    machine: Machine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(machine, 2 * GIB, 10)
    machine.usage.round()
    clock.now += HOUR
    machine.usage._saved_at = 0.0
    machine.usage.round()
    clock.now += 8
    machine.open()  # As after a kill: 8 s are lost.
    machine.usage.round()
    assert [round(each["reserved_gib_hours"], 3) for each in lines(machine)] == [2.0]
    clock.wall = "2026-11-29T11:00:00.000+00:00"
    clock.now += HOUR
    machine.register.remove(me(), "one")
    clock.now += 10

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    # Between the lines and the state without them.
    with monkeypatch.context() as context, pytest.raises(KeyboardInterrupt):
        context.setattr(Path, "replace", killed)
        machine.usage.round()
    before = lines(machine)
    for _ in range(2):
        machine.open()
        machine.usage.round()
    assert lines(machine) == before
    assert len(before) == 2


def test_a_line_that_was_cut_is_left_out(
    machine: Machine, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    create(machine, 2 * GIB, 10)
    clock.now += HOUR
    machine.usage.close()
    file = machine.paths.state / "usage" / "2026-11.jsonl"
    assert file.stat().st_mode & 0o777 == 0o600
    with file.open("a") as opened:
        opened.write('{"user":"alice","ui')
    machine.open()
    machine.usage.look()
    clock.now += HOUR
    machine.usage.close()
    found = machine.usage.page("2026-11-01", None, lambda _: True)["lines"]
    assert isinstance(found, list)
    assert len(found) == 2
    assert "cannot be read" in caplog.text


def test_a_full_disk_loses_no_line(
    machine: Machine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(machine, 2 * GIB, 10)
    clock.now += HOUR

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as context, pytest.raises(usage.StateError, match="No space left"):
        context.setattr(os, "fsync", full)
        machine.usage.close()
    assert lines(machine) == []
    machine.usage.round()
    assert [round(each["reserved_gib_hours"], 2) for each in lines(machine)] == [2.0]


def test_pages_have_all_lines_once(machine: Machine, clock: Clock) -> None:
    folder = machine.paths.state / "usage"
    made = [
        UsageLine(user="u", uid=at % 3, slice=f"{at}", card="GPU-a", from_=day, to=f"{day}T01")
        for at in range(700)
        for day in ("2026-10-05", "2026-11-05")
    ]
    for month in ("2026-10", "2026-11"):
        texts = [usage.msgspec.json.encode(each) for each in made if each.to[:7] == month]
        (folder / f"{month}.jsonl").write_bytes(b"\n".join(texts) + b"\n")
    create(machine, 2 * GIB, 10)

    def read(since: str, uid: int) -> list[UsageLine]:
        found: list[UsageLine] = []
        at: Any = None
        while True:
            answer: dict[str, Any] = machine.usage.page(since, at, lambda line: line.uid == uid)
            assert len(usage.msgspec.json.encode(answer)) < 64 << 10
            found += answer["lines"]
            at = answer["after"]
            if at is None:
                return found

    assert len(read("2026-10-01", 0)) == 2 * 234
    assert len(read("2026-11-01", 1)) == 233
    assert [each.name for each in read("2026-11-01", ALICE)] == ["one"]
    strange = machine.usage.page("2026-10-01", ("../../etc/passwd", -5), lambda _: True)
    assert strange["after"] is None


def test_a_card_of_which_a_user_has_nothing_has_no_line(machine: Machine, clock: Clock) -> None:
    machine.policy = Policy(default=Grant(LimitRequest(2 * GIB, 30), ("0",)))
    machine.register.default(ALICE)
    machine.usage.round()
    clock.now += HOUR
    machine.usage.close()
    (line,) = lines(machine)
    assert (line["card"], line["kind"]) == ("GPU-a", "default")
    assert line["reserved_card_hours"] == pytest.approx(0.3, abs=0.001)
