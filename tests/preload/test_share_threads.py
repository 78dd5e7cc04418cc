"""The meter's thread: there where something is limited, and nowhere else; and nothing besides."""

import re
import signal
from pathlib import Path

import pytest

from support import slices, syscalls
from support.launcher import launched, until

WORK = "kernel k m work_50us"
LAUNCH = "launch cuLaunchKernel k - 1 5"


def descriptors(script):
    """Files and sockets that it has open, the stub's own included."""
    return sorted(str(link.readlink()) for link in Path(f"/proc/{script.pid}/fd").iterdir())


def masks(script, name):
    """The signals that the thread of this name blocks, and whether any is pending for it."""
    for thread in Path(f"/proc/{script.pid}/task").iterdir():
        if (thread / "comm").read_text().strip() == name:
            status = (thread / "status").read_text()
            return int(re.search(r"SigBlk:\s*(\w+)", status)[1], 16)
    raise AssertionError(f"no thread {name}")


def wait_for_meter(script):
    """Wait until the meter has set its name; a new thread begins with its creator's."""
    until(
        lambda: script.tasks() == ["console", "hami-meter"],
        lambda: f"the process has the threads {script.tasks()}",
    )


def test_the_first_limited_launch_starts_it_and_no_other_does(launcher, gpu):
    script = launcher(gpu)
    script.do(WORK, "stream s", "event e", "record e s", "sync_context")
    assert script.tasks() == ["console"]
    files = descriptors(script)
    script.do(LAUNCH, "sync_context", f"threads 8 {LAUNCH}", "stream t", LAUNCH, "sync_context")
    wait_for_meter(script)
    assert descriptors(script) == files


def test_captured_launches_do_not_start_it(launcher, gpu):
    script = launcher(gpu)
    script.do(WORK, "stream s", "begin s", "launch cuLaunchKernel k s 1 5", "end s g")
    assert script.tasks() == ["console"]
    script.do("instantiate x g", "launch cuGraphLaunch x s", "sync s")
    wait_for_meter(script)


@pytest.mark.parametrize("share", [None, 100])
def test_without_a_share_it_is_not_started(launcher, gpu, share):
    script = launcher(gpu, share)
    script.do(WORK, LAUNCH, f"threads 8 {LAUNCH}", "sync_context")
    assert script.tasks() == ["console"]
    # Not a call to the driver more than the program's own.
    assert not {"cuEventRecord", "cuEventCreate", "cuEventQuery"} & set(gpu.calls())
    assert script.account("used_ns") == 0


def test_it_receives_none_of_the_program_s_signals(launcher, gpu):
    script = launcher(gpu)
    script.do(WORK, LAUNCH, "sync_context")
    blocked = masks(script, "hami-meter")
    # The kernel allows no thread to block these two, and the C library not its own two.
    never = {signal.SIGKILL, signal.SIGSTOP, 32, 33}
    assert all(blocked >> (number - 1) & 1 for number in range(1, 65) if number not in never)
    # The program's own threads block what they blocked.
    assert masks(script, "console") == 1 << (signal.SIGUSR1 - 1)


def test_children_of_a_fork_have_none_until_they_need_it(launcher, gpu):
    script = launcher(gpu)
    script.do(WORK, LAUNCH)
    assert script("fork count_threads") == 1
    assert script(f"fork {LAUNCH}") == 3
    assert script("fork count_threads") == 1
    script.do(LAUNCH, "sync_context")
    wait_for_meter(script)
    assert launched(gpu) == {"work_50us": 10}


def test_a_child_that_uses_the_card_first_has_its_own(launcher, gpu):
    """The parent never launched; nor does the child's meter outlive it."""
    script = launcher(gpu, begin=False)
    child = ";".join(["init", "device 0 a", "module m", WORK, LAUNCH, "sync -", "count_threads"])
    script.tell(f"vfork {child}")
    line = ""
    while not line.startswith("count_threads"):
        line = script.next_line()
    assert line.endswith("-> 2")
    assert script.next_line() == " -> 0"
    assert script.tasks() == ["console"]


def test_a_share_has_no_effect_on_a_program_without_cuda(
    artifacts, program, launcher, gpu, tmp_path
):
    """The same system calls with a share in the slice as without one."""
    made = [launcher(gpu, share, begin=False).slice for share in (None, 30)]
    traces = [
        syscalls.names(
            syscalls.trace(["ls", "/"], slices.environment(artifacts.library, slice), output)
        )
        for slice, output in zip(made, (tmp_path / "none", tmp_path / "share"), strict=True)
    ]
    assert traces[0] == traces[1]
