"""Many processes in one slice, many slices on one card.

At every moment what each process holds by our account is what it holds by the driver's ledger,
however its neighbours began and ended.
"""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from support.console import OUT_OF_MEMORY, SUCCESS
from support.memory_use import accounted, agreed, held, refusals, wait_for_use
from support.running import Started
from support.slices import GIB, KIB, MIB
from support.traces import value

WORKERS = Path(__file__).parent / "programs" / "workers.py"

#: How a process ends: told to, or by a signal.
ENDS = {
    "exit": "leave exit",
    "_exit": "leave _exit",
    "abort": "leave abort",
    "crash": "leave crash",
    "exec": "leave exec cat",
    "SIGKILL": signal.SIGKILL,
    "SIGTERM": signal.SIGTERM,
    "SIGSEGV": signal.SIGSEGV,
}


def end(script, how):
    """The process ends this way, and it has ended when this returns."""
    if isinstance(how, signal.Signals):
        os.kill(script.pid, how)
    else:
        script.tell(how)
    if how != "leave exec cat":
        os.waitid(os.P_PID, script.pid, os.WEXITED | os.WNOWAIT)
        return
    # The process goes on as another program, which says what it is told.
    script.wait_for(how + " -> 0")
    script.tell("I am cat now")
    script.wait_for("I am cat now")


# One slice.


def test_sixty_four_processes_end_and_release_only_their_own_memory(stub_server, start):
    """Each holds another size, so that no two can be mistaken for one another."""
    gpu = stub_server("h200")
    first = start(gpu, 8 * GIB)
    scripts = [first, *(start(gpu, first.slice) for _ in range(63))]
    for index, script in enumerate(scripts):
        script.do(f"alloc a {1 + index}M", f"managed b {512 * (1 + index)} 1", "async c 512 -")
    expected = {
        script.pid: (1 + index) * MIB + 512 * (1 + index) + 32 * MIB
        for index, script in enumerate(scripts)
    }
    assert accounted(first.slice) == held(gpu) == expected
    for index, script in enumerate(scripts[8:]):
        end(script, list(ENDS.values())[index % len(ENDS)])
        gone = expected.pop(script.pid)
        gpu.wait_until(lambda gpu, pid=script.pid: pid not in held(gpu))
        assert held(gpu) == expected
        ours = accounted(first.slice)
        # The dead one's bytes may take their time, the others' are what they were.
        assert ours.pop(script.pid, gone) == gone
        assert {pid: ours[pid] for pid in expected} == expected
    wait_for_use(gpu, first.slice, sum(expected.values()))
    assert first(f"alloc z {8 * GIB - sum(expected.values())}") == SUCCESS
    assert first("alloc y 1M") == OUT_OF_MEMORY
    assert gpu.peak() <= 8 * GIB


@pytest.mark.parametrize("how", ENDS.values(), ids=ENDS)
def test_a_process_that_ends_releases_everything(gpu, start, how):
    script = start(gpu, GIB)
    neighbour = start(gpu, script.slice)
    neighbour.do("alloc a 100M")
    script.do("alloc a 100M", "pitch b 1000 1000 4", "managed c 100M 1", "async d 100M -")
    end(script, how)
    wait_for_use(gpu, script.slice, 100 * MIB)
    assert accounted(script.slice) == {neighbour.pid: 100 * MIB}


def test_short_processes_are_each_accounted_separately(gpu, start):
    """Slots of the account are reused; the values of earlier processes must not be visible."""
    first = start(gpu, 4 * GIB)
    first.do("alloc a 3M")
    for generation in range(3):
        scripts = [start(gpu, first.slice) for _ in range(4)]
        for index, script in enumerate(scripts):
            script.do(f"alloc a {10 * (1 + index) + generation}M")
        assert agreed(gpu, first.slice) == 103 * MIB + 4 * generation * MIB
        for script in scripts:
            end(script, "leave exit")
        wait_for_use(gpu, first.slice, 3 * MIB)


# Python's ways to share work.


def workers(gpu, environment, *job):
    return Started([sys.executable, WORKERS, *job], environment)


@pytest.fixture
def python_slice(gpu, slice_dir, preload):
    """A slice of 1 GiB, and the environment of a program in it."""
    directory = slice_dir({gpu.uuids()[0]: GIB})
    return directory, preload(gpu, directory)


def shown(started):
    return json.loads(started.wait_for("holding").next_line())


@pytest.mark.parametrize(
    ("kind", "method", "parent"),
    [
        ("pool", "fork", "plain"),
        ("pool", "spawn", "cuda"),
        ("executor", "fork", "plain"),
        ("executor", "spawn", "cuda"),
        ("executor", "forkserver", "cuda"),
    ],
)
def test_each_worker_of_a_python_pool_is_charged_separately(
    gpu, python_slice, kind, method, parent
):
    directory, env = python_slice
    with workers(gpu, env, "share", kind, method, parent) as started:
        pids = shown(started)["workers"]
        expected = {pid: 16 * (1 + index) * MIB for index, pid in enumerate(pids)}
        if parent == "cuda":
            expected[started.pid] = 8 * MIB
        assert len(expected) == 4 + (parent == "cuda")
        assert accounted(directory) == held(gpu) == expected
        started.tell("")
        shown(started)
        wait_for_use(gpu, directory, 8 * MIB if parent == "cuda" else 0)
        done = started.finish(input="\n")
        assert (done.code, done.err) == (0, "")
    wait_for_use(gpu, directory, 0)


def test_forked_data_loader_workers_are_not_charged(gpu, python_slice):
    directory, env = python_slice
    with workers(gpu, env, "load") as started:
        shown(started)
        assert accounted(directory) == held(gpu) == {started.pid: 64 * MIB}
        done = started.finish(input="\n")
        assert (done.code, done.err) == (0, "")


def test_a_python_child_forked_with_cuda_in_use_changes_nothing(gpu, stub_server, python_slice):
    directory, env = python_slice
    with workers(gpu, env, "fork") as started:
        shown(started)
        assert accounted(directory) == held(gpu) == {started.pid: 64 * MIB}
        limited = started.finish(input="\n")
    bare_gpu = stub_server()
    with workers(bare_gpu, bare_gpu.env, "fork") as started:
        bare = started.finish(input="\n")
    assert "parent 0" in bare.lines
    assert limited == bare


def test_the_memory_of_a_killed_worker_is_available_to_the_next(gpu, python_slice):
    directory, env = python_slice
    with workers(gpu, env, "survive", "900") as started:
        done = started.finish()
    assert done.lines == ["broken", "next 0"]
    assert gpu.peak() == 900 * MIB
    wait_for_use(gpu, directory, 0)


def test_a_daemon_keeps_its_charge_after_its_ancestors_exit(gpu, python_slice):
    directory, env = python_slice
    with workers(gpu, env, "daemonise") as started:
        daemon = shown(started)["daemon"]
        os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)
        assert accounted(directory) == held(gpu) == {daemon: 64 * MIB}
        # The daemon has the other end of our pipe, and ends with it.
        assert started.finish(input="\n").code == 0
    wait_for_use(gpu, directory, 0)


# Slices that promise more than the card has.


def free_on_card(gpu):
    card = gpu.ledger()["cards"][0]
    return card["total"] - card["used"]


@pytest.fixture
def crowded(gpu, slice_dir):
    """Two slices that may each use three quarters of the card, and the card's bytes."""
    total = gpu.ledger()["cards"][0]["total"]
    limit = total * 3 // 4 // MIB * MIB
    return slice_dir({gpu.uuids()[0]: limit}), slice_dir({gpu.uuids()[0]: limit}), limit


@pytest.mark.parametrize("command", ["alloc b {}", "pitch b 1M {rows} 4", "async b {} -"])
def test_on_a_full_card_the_driver_refuses_and_not_we(gpu, start, crowded, command):
    first, second, limit = crowded
    one, two = start(gpu, first), start(gpu, second)
    one.do(f"alloc a {limit}")
    two.do("alloc a 1M")
    before = gpu.ledger()["cards"][0]["refused"]
    assert two(command.format(limit // 2, rows=limit // 2 // MIB)) == OUT_OF_MEMORY
    assert gpu.ledger()["cards"][0]["refused"] > before
    assert refusals(first) == refusals(second) == 0
    assert accounted(second) == {two.pid: MIB}
    assert {**accounted(first), **accounted(second)} == held(gpu)
    one.do("free a")
    assert two(command.format(limit // 2, rows=limit // 2 // MIB)) == SUCCESS


def test_a_pool_takes_less_where_the_card_is_nearly_full_and_is_charged_so(gpu, start, crowded):
    first, second, limit = crowded
    one, two = start(gpu, first), start(gpu, second)
    one.do(f"alloc a {limit}")
    two.do(f"alloc a {(free_on_card(gpu) - 10 * MIB) // MIB * MIB}")
    before = accounted(second)[two.pid]
    assert two("async b 1M -") == SUCCESS
    assert accounted(second)[two.pid] == held(gpu)[two.pid] == before + 2 * MIB
    assert refusals(second) == 0


def test_free_memory_is_the_lower_of_limit_and_card(gpu, start, crowded):
    first, second, limit = crowded
    one, two = start(gpu, first), start(gpu, second)

    def told(script):
        script.do("info")
        return value(script.outputs, "free"), value(script.outputs, "total")

    assert told(one) == told(two) == (limit, limit)
    one.do(f"alloc a {limit // 2}", "async b 1M -")
    assert told(one) == (limit - limit // 2 - 32 * MIB, limit)
    assert told(two) == (min(limit, free_on_card(gpu)), limit)
    two.do(f"alloc a {4 * KIB}", f"alloc b {limit // 2}")
    assert told(one) == told(two) == (free_on_card(gpu), limit)
    # Managed memory is the limit's and not the card's.
    two.do(f"managed c {limit // 4} 1")
    assert told(one) == (free_on_card(gpu), limit)
    assert told(two)[0] == min(limit - 4 * KIB - limit // 2 - limit // 4, free_on_card(gpu))
