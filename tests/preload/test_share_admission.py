"""Threads that wait for permission to launch, and other calls that are made meanwhile.

The test takes the place of the coordinator, so no thread gets permission until the test grants it.
"""

import os
import signal

import pytest

from support.launcher import LaunchPermission, launched, until
from support.running import Started

WORK, OTHER = "kernel k m work_100us", "kernel l m other_100us"
LAUNCH = "launch cuLaunchKernel k"


@pytest.fixture
def waiting(launcher, gpu):
    """A console whose thread `t` waits to launch on stream s, and the permission it waits for."""
    script = launcher(gpu)
    script.do(WORK, OTHER, "stream s", "stream o")
    permission = LaunchPermission(script.slice)
    permission.revoke()
    script.do("on t count_signals", f"start t {LAUNCH} s")
    script.waits()
    assert launched(gpu) == {}
    return script, permission


def launch_waiting(script, permission):
    """Grant permission, and wait until thread `t` has launched."""
    permission.grant()
    script.do("finish t", "sync_context")


def test_a_waiting_launch_is_made_once(waiting, gpu):
    script, permission = waiting
    launch_waiting(script, permission)
    assert launched(gpu) == {"work_100us": 1}


def test_a_signal_neither_ends_the_wait_nor_loses_the_launch(waiting, gpu):
    script, permission = waiting
    for count in range(1, 50):
        os.kill(script.pid, signal.SIGUSR1)
        until(lambda count=count: script("signals") >= count, "the handler was not called")
    script.waits()
    assert launched(gpu) == {}
    launch_waiting(script, permission)
    assert launched(gpu) == {"work_100us": 1}


def test_a_process_that_is_killed_while_it_waits(waiting, gpu, launcher):
    """Another process of the slice can launch, and the pending launch is never made."""
    script, permission = waiting
    neighbour = launcher(gpu, slice=script.slice)
    neighbour.do(OTHER)
    script.kill()
    permission.grant()
    neighbour.do("launch cuLaunchKernel l - 1 5", "sync -")
    assert launched(gpu) == {"other_100us": 5}


def test_a_program_that_exits_while_a_thread_waits(waiting, gpu):
    script, _ = waiting
    done = script.finish()
    assert (done.code, done.err) == (0, "")
    assert launched(gpu) == {}


def test_a_fork_while_a_thread_waits(waiting, gpu):
    """The child has no copy of the waiting thread; the parent's thread still waits."""
    script, permission = waiting
    for _ in range(5):
        assert script(f"fork {LAUNCH} o") == 3
        assert script.outputs == "child=0"
        assert script("fork count_threads") == 1
    script.waits()
    launch_waiting(script, permission)
    assert launched(gpu) == {"work_100us": 1}


def test_a_new_program_while_a_thread_waits(waiting, gpu):
    script, permission = waiting
    script.tell("vfork count_threads")
    assert script.next_line() == "vfork count_threadscount_threads  -> 1"
    assert script.next_line() == " -> 0"
    launch_waiting(script, permission)
    assert launched(gpu) == {"work_100us": 1}


def test_many_waiting_threads_all_launch(waiting, gpu):
    script, permission = waiting
    for name in "abcdefgh":
        script.do(f"start {name} {LAUNCH} - 1 10")
    script.waits()
    assert launched(gpu) == {}
    permission.grant()
    script.do(*(f"finish {name}" for name in "abcdefgh"))
    launch_waiting(script, permission)
    assert launched(gpu) == {"work_100us": 81}


def test_other_calls_do_not_wait(waiting, gpu):
    """Other threads can use streams, events, copies, contexts and captures."""
    script, permission = waiting
    script.do("event e", "record e o", "sync_event e", "sync o", "query o", "sync_context")
    script.do("stream n", "destroy_stream n", "context b", "destroy b", "current a", "callback o")
    script.do("begin o 1", f"{LAUNCH} o", "end o g")
    script.do("instantiate x g", "module n", "unload n", "sync -")
    assert launched(gpu) == {}
    launch_waiting(script, permission)
    assert launched(gpu) == {"work_100us": 1}


@pytest.mark.parametrize("mode", [0, 1, 2], ids=["global", "thread-local", "relaxed"])
def test_a_capture_is_made_while_another_thread_waits(waiting, gpu, mode):
    """Captured launches take no engine time, so they do not wait."""
    script, permission = waiting
    script.do(f"begin o {mode}", f"{LAUNCH} o", "launch cuLaunchKernel l o 1 2", "capturing o")
    assert script.outputs == "1"
    script.do("end o g", "show g")
    assert script.outputs == "0 0 0 edges=2"
    assert launched(gpu) == {}
    launch_waiting(script, permission)
    assert launched(gpu) == {"work_100us": 1}


def test_a_capture_is_not_invalidated_by_an_admitted_launch(waiting, gpu):
    script, permission = waiting
    script.do("begin o 0", f"{LAUNCH} o")
    permission.grant()
    script.do("finish t", "launch cuLaunchKernel l o", "capturing o")
    assert script.outputs == "1"
    script.do("end o g", "show g", "sync_context")
    assert script.outputs == ""
    assert launched(gpu) == {"work_100us": 1}


def test_a_graph_waits_as_a_kernel_does(waiting, gpu):
    script, permission = waiting
    script.do("begin o 1", "launch cuLaunchKernel l o 1 3", "end o g", "instantiate x g")
    script.do("start u launch cuGraphLaunch x o")
    script.waits()
    assert launched(gpu) == {}
    permission.grant()
    script.do("finish u")
    launch_waiting(script, permission)
    assert launched(gpu) == {"work_100us": 1, "other_100us": 3}


@pytest.mark.parametrize("end", ["destroy_stream s", "reset 0"])
def test_the_stream_of_a_waiting_launch_is_destroyed(waiting, gpu, end):
    """This is an error of the program. The driver returns it, and no thread hangs."""
    script, permission = waiting
    script.do(end)
    permission.grant()
    assert script("finish t") != 0
    script.do("device 0 a", "module m", WORK, f"{LAUNCH} - 1 5", "sync_context")
    assert launched(gpu) == {"work_100us": 5}


def test_cancelling_a_waiting_thread_takes_effect_at_the_same_call_as_without_us(launcher, gpu):
    """A launch is no cancellation point: it is made, and the thread ends after it.

    Our calls around the launch are no cancellation points either.
    """
    script = launcher(gpu)
    script.do(WORK, "stream s", f"on t {LAUNCH} s", "sync s")
    permission = LaunchPermission(script.slice)
    permission.revoke()
    script.do(f"start t {LAUNCH} s")
    script.waits()
    script.do("cancel t")
    script.waits()
    permission.grant()
    script.do("join t")
    assert script.outputs == "cancelled"
    script.do(f"{LAUNCH} s 1 3", "sync_context")
    assert launched(gpu) == {"work_100us": 5}


def test_a_program_outside_the_slice_does_not_wait(waiting, gpu, program):
    script, permission = waiting
    text = "init;device 0 a;module m;kernel k m outside_10us;launch cuLaunchKernel k -;sync -"
    with Started([program("console"), text], gpu.env) as other:
        assert other.finish().lines[-1] == "sync - -> 0"
    launch_waiting(script, permission)
    assert launched(gpu) == {"work_100us": 1, "outside_10us": 1}
