"""Programs under a share that end or replace the objects that they launch on lose no launch.

Each is run without us first; its results, and the kernels that reach the card, must be the same.
"""

import os
import signal

import pytest

from support.launcher import launched, until

SHORT, LONG = "kernel k m short_50us", "kernel l m long_3000us"


def test_streams_that_are_destroyed_right_after_launches(unchanged):
    lines = [SHORT, LONG]
    for kernel in "kl" * 5:
        for flags in (0, 1):
            lines += [f"stream s {flags}", f"launch cuLaunchKernel {kernel} s 1 3"]
            lines += ["destroy_stream s"]
    # A handle that comes again means another stream.
    lines += ["stream s", "launch cuLaunchKernel k s 1 3", "stream_id s", "sync s"]
    unchanged([*lines, "sync_context"])


@pytest.mark.parametrize("end", ["destroy b", "reset 0", "release 0"])
def test_contexts_that_end_with_work_in_flight(unchanged, end):
    """Open batches, batches in flight, and a new context, perhaps with the old handle."""
    other = "device 0 b" if end != "destroy b" else "context b"
    lines = ["release 0"] if end == "release 0" else []
    for _ in range(10):
        lines += [other, "module m", SHORT, LONG, "stream s"]
        lines += ["launch cuLaunchKernel l s", "launch cuLaunchKernel k - 1 3"]
        lines += ["launch cuLaunchKernel k s 1 3", end]
    lines += ["device 0 a", "module m", SHORT, "launch cuLaunchKernel k - 1 3", "sync_context"]
    unchanged(lines)


def test_modules_that_are_unloaded_with_work_in_flight(unchanged):
    lines = ["stream s"]
    for name in ("one_50us", "two_2000us") * 5:
        lines += ["module n", f"kernel k n {name}", "launch cuLaunchKernel k s 1 3", "unload n"]
    unchanged([*lines, "sync s"])


def test_contexts_that_take_turns_in_a_thread(unchanged):
    """The same stream handles mean other streams: NULL, and those of each context."""
    lines = [SHORT, "context b", "module n", "kernel n n there_50us", "context c 1", "module o"]
    lines += ["kernel o o card_50us"]
    for _ in range(20):
        lines += ["current a", "launch cuLaunchKernel k - 1 2", "push b"]
        lines += ["launch cuLaunchKernel n - 1 2", "launch cuLaunchKernel n P", "pop"]
        lines += ["launch cuLaunchKernel k -", "current c", "launch cuLaunchKernel o L 1 2"]
        # No stream or kernel of another context, and none at all.
        lines += ["launch cuLaunchKernel k -", "current -", "launch cuLaunchKernel k -"]
    for context in "abc":
        lines += [f"current {context}", "sync_context"]
    unchanged(lines, cards="a100,a100")


@pytest.mark.parametrize("stream", ["-", "L", "P", "s"])
def test_programs_that_launch_from_many_threads_at_once(unchanged, stream):
    lines = [SHORT, "stream s", f"threads 16 launch cuLaunchKernel k {stream} 1 50"]
    unchanged([*lines, "sync_context"])


def test_threads_that_end_with_an_open_batch(unchanged):
    lines = [SHORT]
    for stream in "-P":
        lines += [f"thread launch cuLaunchKernel k {stream} 1 3"] * 30
    unchanged([*lines, "sync_context"])


def test_a_launch_when_the_program_ends(launcher, gpu):
    script = launcher(gpu)
    script.do(SHORT, "at_exit launch cuLaunchKernel k -", "launch cuLaunchKernel k -")
    done = script.finish()
    assert (done.code, done.lines[-1], done.err) == (0, "at exit -> 0", "")
    assert launched(gpu) == {"short_50us": 2}


def test_children_of_an_initialised_parent_cannot_launch(unchanged):
    """Nor does what they try there touch what the parent has in flight."""
    lines = [SHORT, "stream s", "launch cuLaunchKernel k s 1 40"]
    for stream in "s-P":
        lines += [f"fork launch cuLaunchKernel k {stream} 1 2", "fork init"]
        lines += [f"launch cuLaunchKernel k {stream} 1 2"]
    answers = unchanged([*lines, "sync_context"])
    assert all("child=0" in answer for answer in answers if answer.startswith("fork"))


def test_an_executed_child_launches_its_own_kernels(launcher, gpu):
    script = launcher(gpu)
    script.do(SHORT, "launch cuLaunchKernel k - 1 5")
    child = "init;device 0 a;module m;kernel k m child_50us;launch cuLaunchKernel k - 1 5;sync -"
    script.tell(f"vfork {child}")
    until(lambda: script.next_line() == " -> 0", "the new program does not end")
    script.do("launch cuLaunchKernel k - 1 5", "sync -")
    assert launched(gpu) == {"short_50us": 10, "child_50us": 5}


def test_a_child_that_initialises_cuda_is_metered_separately(launcher, gpu):
    script = launcher(gpu, begin=False)
    script.tell("fork init")
    assert script.next_line() == "fork init -> 0 child=0"
    script.do("init", "device 0 a", "module m", SHORT, "launch cuLaunchKernel k - 1 5", "sync -")
    assert launched(gpu) == {"short_50us": 5}


def test_a_thread_that_is_cancelled_between_launches(launcher, gpu):
    script = launcher(gpu)
    script.do(SHORT, "on t launch cuLaunchKernel k - 1 5", "cancel t", "join t")
    assert script.outputs == "cancelled"
    script.do("launch cuLaunchKernel k - 1 5", "sync_context")
    assert launched(gpu) == {"short_50us": 10}


def test_a_handler_that_interrupts_launches(launcher, gpu):
    """None is lost, none made twice."""
    script = launcher(gpu)
    script.do("on t count_signals", SHORT, "start t launch cuLaunchKernel k - 1 300")
    while launched(gpu).get("short_50us", 0) < 300:
        os.kill(script.pid, signal.SIGUSR1)
    script.do("finish t", "sync_context")
    assert script("signals") >= 1
    assert launched(gpu) == {"short_50us": 300}


def test_a_program_s_own_events_and_callbacks(unchanged):
    """As many, in the same places, with the same ids beside them."""
    lines = [SHORT, LONG, "stream s", "event e", "event f", "event n 2", "stream_id s"]
    lines += ["query_event e", "elapsed e f"]
    for _ in range(20):
        lines += ["record e s", "launch cuLaunchKernel k s 1 5", "callback s", "record f s"]
        lines += ["record n s", "wait - f", "launch cuLaunchKernel l -", "sync_event f"]
        lines += ["query_event e", "query_event f", "query_event n", "elapsed n f"]
    lines += ["sync_context", "callbacks", "stream t", "stream_id t", "destroy_event e"]
    unchanged([*lines, "query_event f", "launch cuLaunchKernel k s", "sync s"])


def test_a_program_measures_its_own_kernels(launcher, gpu):
    """Between its two events lies its kernel alone, as long as that takes on the card."""
    script = launcher(gpu)
    script.do("kernel k m long_30000us", "event e", "event f", "stream s")
    script.do("record e s", "launch cuLaunchKernel k s", "record f s", "sync s", "elapsed e f")
    before = float(script.outputs)
    assert before >= 30
    # The share has been used up: a launch waits, and what was recorded behind it waits with it.
    script.do("record e s", "launch cuLaunchKernel k s", "record f s", "sync s", "elapsed e f")
    assert float(script.outputs) >= 30
    assert launched(gpu) == {"long_30000us": 2}
