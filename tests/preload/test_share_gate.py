"""Threads that wait at the gate: what becomes of them, and of who comes by meanwhile.

The test is the coordinator here, so a gate that is shut stays shut until the test opens it.
"""

import os
import signal

import pytest

from support.launcher import Gate, launched, until
from support.running import Started

WORK, OTHER = "kernel k m work_100us", "kernel l m other_100us"
LAUNCH = "launch cuLaunchKernel k"


@pytest.fixture
def held(launcher, gpu):
    """A script with a thread `t` that waits with a launch on stream s, and the gate it waits at."""
    script = launcher(gpu)
    script.do(WORK, OTHER, "stream s", "stream o")
    gate = Gate(script.slice)
    gate.shut()
    script.do("on t count_signals", f"start t {LAUNCH} s")
    script.waits()
    assert launched(gpu) == {}
    return script, gate


def through(script, gate):
    """The gate opens, and the launch of thread `t` goes through once."""
    gate.open()
    script.do("finish t", "sync_context")


def test_who_waits_goes_through_once(held, gpu):
    script, gate = held
    through(script, gate)
    assert launched(gpu) == {"work_100us": 1}


def test_a_signal_neither_ends_the_wait_nor_loses_the_launch(held, gpu):
    script, gate = held
    for count in range(1, 50):
        os.kill(script.pid, signal.SIGUSR1)
        until(lambda count=count: script("signals") >= count, "the handler was not called")
    script.waits()
    assert launched(gpu) == {}
    through(script, gate)
    assert launched(gpu) == {"work_100us": 1}


def test_a_process_that_is_killed_while_it_waits(held, gpu, launcher):
    """Its neighbour in the slice is let through, and what it never launched is nobody's."""
    script, gate = held
    neighbour = launcher(gpu, slice=script.slice)
    neighbour.do(OTHER)
    script.kill()
    gate.open()
    neighbour.do("launch cuLaunchKernel l - 1 5", "sync -")
    assert launched(gpu) == {"other_100us": 5}


def test_a_program_that_exits_while_a_thread_waits(held, gpu):
    script, _ = held
    done = script.finish()
    assert (done.code, done.err) == (0, "")
    assert launched(gpu) == {}


def test_a_fork_while_a_thread_waits(held, gpu):
    """The child is no copy of the wait; the parent's goes on."""
    script, gate = held
    for _ in range(5):
        assert script(f"fork {LAUNCH} o") == 3
        assert script.outputs == "child=0"
        assert script("fork count_threads") == 1
    script.waits()
    through(script, gate)
    assert launched(gpu) == {"work_100us": 1}


def test_a_new_program_while_a_thread_waits(held, gpu):
    script, gate = held
    script.tell("vfork count_threads")
    assert script.next_line() == "vfork count_threadscount_threads  -> 1"
    assert script.next_line() == " -> 0"
    through(script, gate)
    assert launched(gpu) == {"work_100us": 1}


def test_many_threads_wait_and_all_go_through(held, gpu):
    script, gate = held
    for name in "abcdefgh":
        script.do(f"start {name} {LAUNCH} - 1 10")
    script.waits()
    assert launched(gpu) == {}
    gate.open()
    script.do(*(f"finish {name}" for name in "abcdefgh"))
    through(script, gate)
    assert launched(gpu) == {"work_100us": 81}


def test_what_is_no_launch_does_not_wait(held, gpu):
    """Streams, events, copies, contexts, captures: the program's other threads do all they like."""
    script, gate = held
    script.do("event e", "record e o", "sync_event e", "sync o", "query o", "sync_context")
    script.do("stream n", "destroy_stream n", "context b", "destroy b", "current a", "callback o")
    script.do("begin o 1", f"{LAUNCH} o", "end o g")
    script.do("instantiate x g", "module n", "unload n", "sync -")
    assert launched(gpu) == {}
    through(script, gate)
    assert launched(gpu) == {"work_100us": 1}


@pytest.mark.parametrize("mode", [0, 1, 2], ids=["global", "thread-local", "relaxed"])
def test_a_capture_is_made_while_another_thread_waits(held, gpu, mode):
    """Launches that are written down take no time, so they have nothing to wait for."""
    script, gate = held
    script.do(f"begin o {mode}", f"{LAUNCH} o", "launch cuLaunchKernel l o 1 2", "capturing o")
    assert script.outputs == "1"
    script.do("end o g", "show g")
    assert script.outputs == "0 0 0 edges=2"
    assert launched(gpu) == {}
    through(script, gate)
    assert launched(gpu) == {"work_100us": 1}


def test_a_capture_is_not_spoilt_by_the_launch_that_is_let_through(held, gpu):
    script, gate = held
    script.do("begin o 0", f"{LAUNCH} o")
    gate.open()
    script.do("finish t", "launch cuLaunchKernel l o", "capturing o")
    assert script.outputs == "1"
    script.do("end o g", "show g", "sync_context")
    assert script.outputs == ""
    assert launched(gpu) == {"work_100us": 1}


def test_a_graph_waits_as_a_kernel_does(held, gpu):
    script, gate = held
    script.do("begin o 1", "launch cuLaunchKernel l o 1 3", "end o g", "instantiate x g")
    script.do("start u launch cuGraphLaunch x o")
    script.waits()
    assert launched(gpu) == {}
    gate.open()
    script.do("finish u")
    through(script, gate)
    assert launched(gpu) == {"work_100us": 1, "other_100us": 3}


@pytest.mark.parametrize("end", ["destroy_stream s", "reset 0"])
def test_what_a_thread_waits_to_launch_on_is_gone(held, gpu, end):
    """An error of the program's: the driver says it, and nothing hangs."""
    script, gate = held
    script.do(end)
    gate.open()
    assert script("finish t") != 0
    script.do("device 0 a", "module m", WORK, f"{LAUNCH} - 1 5", "sync_context")
    assert launched(gpu) == {"work_100us": 5}


def test_cancelling_who_waits_takes_effect_where_it_would_without_us(launcher, gpu):
    """A launch is no place where a thread is cancelled: it is made, and the thread ends after it.

    Nor do the calls that we make around it become such places.
    """
    script = launcher(gpu)
    script.do(WORK, "stream s", f"on t {LAUNCH} s", "sync s")
    gate = Gate(script.slice)
    gate.shut()
    script.do(f"start t {LAUNCH} s")
    script.waits()
    script.do("cancel t")
    script.waits()
    gate.open()
    script.do("join t")
    assert script.outputs == "cancelled"
    script.do(f"{LAUNCH} s 1 3", "sync_context")
    assert launched(gpu) == {"work_100us": 5}


def test_a_program_outside_the_slice_does_not_wait(held, gpu, program):
    script, gate = held
    text = "init;device 0 a;module m;kernel k m outside_10us;launch cuLaunchKernel k -;sync -"
    with Started([program("console"), text], gpu.env) as other:
        assert other.finish().lines[-1] == "sync - -> 0"
    through(script, gate)
    assert launched(gpu) == {"work_100us": 1, "outside_10us": 1}
