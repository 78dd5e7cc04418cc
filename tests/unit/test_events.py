"""The events of a slice: computed from two reads, and of real programs on a stub GPU."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hami_py as hami
from hami_py import Event
from hami_py.model import ProcessSnapshot, SliceCard, SliceSnapshot, changes
from support.slices import MIB
from support.stub import StubServer
from unit.machine import DEADLINE

Start = Callable[..., "subprocess.Popen[str]"]

A, B = (1, 10, 100), (1, 11, 100)
NOTHING = SliceSnapshot()


def seen(
    used: int = 0, limit: int | None = 100, total: int = 0, **processes: int | tuple[int, bool]
) -> SliceSnapshot:
    """One card and its processes: how much each was refused, and whether it lives."""
    keys = {"a": A, "b": B}
    return SliceSnapshot(
        {"GPU-1": SliceCard(uuid="GPU-1", memory_used=used, memory_limit=limit, refusals=total)},
        {
            keys[name]: ProcessSnapshot(True, {"GPU-1": value})
            if isinstance(value, int)
            else ProcessSnapshot(value[1], {"GPU-1": value[0]})
            for name, value in processes.items()
        },
    )


def told(*looks: SliceSnapshot) -> list[list[Event]]:
    """The events of each look, the first against an unused slice."""
    found, last = [], NOTHING
    for look in looks:
        events, last = changes(last, look)
        found.append(events)
    return found


def short(*looks: SliceSnapshot) -> list[list[tuple[str, int | None, int]]]:
    return [[(e.kind, e.pid, e.count) for e in events] for events in told(*looks)]


def test_an_idle_slice_has_no_events() -> None:
    assert short(seen(), seen(a=0), seen(a=0), seen(a=0)) == [[], [("joined", 10, 0)], [], []]


def test_the_first_read_reports_earlier_totals() -> None:
    assert short(seen(used=101, total=5, a=2, b=3)) == [
        [
            ("joined", 10, 0),
            ("joined", 11, 0),
            ("refused", 10, 2),
            ("refused", 11, 3),
            ("over", None, 0),
        ]
    ]


def test_a_refusal_has_process_card_and_count() -> None:
    assert told(seen(used=7, total=1, a=1), seen(used=8, total=4, a=4))[1] == [
        Event("refused", 10, "GPU-1", 3, memory_used=8, memory_limit=100)
    ]


def test_over_and_within_are_reported_once_each() -> None:
    looks = [seen(used=used) for used in (100, 101, 150, 100, 99)]
    assert short(*looks) == [[], [("over", None, 0)], [], [("within", None, 0)], []]
    # By the limit as well as by use; none is never over.
    looks = [seen(used=50, limit=limit) for limit in (49, None, 0, 50)]
    assert [[e.kind for e in events] for events in told(*looks)] == [
        ["over"],
        ["within"],
        ["over"],
        ["within"],
    ]


def test_an_ended_process_leaves_once() -> None:
    gone = seen(a=(0, False))
    assert short(seen(a=0), gone, gone, seen()) == [
        [("joined", 10, 0)],
        [("left", 10, 0)],
        [],
        [],
    ]
    assert short(seen(a=0), seen())[1] == [("left", 10, 0)]


def test_a_process_between_two_reads_is_reported() -> None:
    assert short(seen(), seen(total=2, a=(2, False)))[1] == [
        ("joined", 10, 0),
        ("refused", 10, 2),
        ("left", 10, 0),
    ]


def test_refusals_of_an_unseen_process_have_no_pid() -> None:
    assert short(seen(), seen(total=4, b=1))[1] == [
        ("joined", 11, 0),
        ("refused", 11, 1),
        ("refused", None, 3),
    ]


def test_a_reused_pid_is_another_process() -> None:
    again = SliceSnapshot({}, {(1, 10, 101): ProcessSnapshot(True)})
    assert short(SliceSnapshot({}, {A: ProcessSnapshot(True)}), again)[1] == [
        ("joined", 10, 0),
        ("left", 10, 0),
    ]


def test_no_refusal_is_reported_twice_while_a_slot_is_freed() -> None:
    """A dead process's count is for one look in neither place; another is refused meanwhile."""
    looks = [
        seen(total=5, a=5, b=0),
        seen(total=1, a=(0, False), b=1),
        seen(total=6, b=1),
        seen(total=6, b=1),
    ]
    refused = [e.count for events in told(*looks) for e in events if e.kind == "refused"]
    assert refused == [5, 1]


def test_only_a_changed_share_is_reported_and_once() -> None:
    def look(**regime: Any) -> SliceSnapshot:
        card = SliceCard(uuid="GPU-1", memory_used=7, memory_limit=100, **regime)
        return SliceSnapshot({"GPU-1": card})

    hard, soft = look(share=30), look(share=30, mode="soft", priority="high")
    assert told(hard, hard, soft, soft, look()) == [
        [],
        [],
        [Event("share", None, "GPU-1", 0, 7, 100, 30, "soft", "high")],
        [],
        [Event("share", None, "GPU-1", 0, 7, 100, None, "hard", "normal")],
    ]


# Real programs.


def test_a_refusal_is_reported_with_pid_card_and_count(stub: StubServer, start: Start) -> None:
    with hami.slice(gpumem={"1": "100MiB"}, devices=["1"]) as s:
        probe = start(s, "probe")
        assert probe.stdin is not None
        assert probe.stdout is not None
        for _ in range(3):
            probe.stdin.write("101 0\n")
        probe.stdin.flush()
        assert [probe.stdout.readline() for _ in range(3)] == ["2\n"] * 3
        joined, refused = s.events(timeout=0)
        assert joined == Event("joined", probe.pid)
        assert refused == Event("refused", probe.pid, stub.uuids()[1], 3, 0, 100 * MIB)


def test_over_and_within_as_a_slice_is_shrunk(stub: StubServer, start: Start) -> None:
    with hami.slice(gpumem="1GiB", devices=["0"]) as s:
        holder = start(s, "hold", "600")
        events = s.events()
        assert next(events) == Event("joined", holder.pid)
        with pytest.warns(UserWarning, match="in use"):
            s.resize(gpumem="500MiB")
        card = stub.uuids()[0]
        assert next(events) == Event("over", None, card, 0, 600 * MIB, 500 * MIB)
        holder.communicate(timeout=DEADLINE)
        left = {event.kind: event for event in (next(events), next(events))}
        assert left["left"].pid == holder.pid
        assert left["within"] == Event("within", None, card, 0, 0, 500 * MIB)


def test_a_new_share_is_reported(stub: StubServer, start: Start) -> None:
    with hami.slice(gpumem="1GiB", gpucores=30, devices=["0"]) as s:
        holder = start(s, "hold", "100")
        events = s.events()
        assert next(events) == Event("joined", holder.pid)
        s.resize(gpucores=50, priority="low")
        held = (100 * MIB, 1024 * MIB)
        assert next(events) == Event("share", None, stub.uuids()[0], 0, *held, 50, "hard", "low")


def test_closing_the_slice_ends_the_events(stub: StubServer) -> None:
    s = hami.slice()
    events = s.events()
    ended: list[list[Event]] = []
    watcher = threading.Thread(target=lambda: ended.append(list(events)))
    watcher.start()
    s.close()
    watcher.join(DEADLINE)
    assert ended == [[]]


def test_a_damaged_account_is_an_error_and_not_silence(stub: StubServer) -> None:
    with hami.slice() as s:
        (s.directory / "account").write_bytes(b"")
        fix = f"remove it with `hami rm {s.id}`, and create another"
        with pytest.raises(hami.StateError, match=fix):
            next(s.events(timeout=0))


def test_the_watching_process_is_not_listed(stub: StubServer, runtime: Path) -> None:
    """Watching takes no place in the account and charges nothing."""
    with hami.slice(gpumem="100MiB", name="seen") as s:
        script = "import hami_py as hami\nprint(list(hami.open_slice('seen').events(timeout=0.2)))"
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", script],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == "[]\n"
        assert list(s.events(timeout=0)) == []
