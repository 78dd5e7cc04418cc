"""The observer process shows whether a signal was sent to the whole process group."""

import sys

from support.artifacts import ROOT
from support.running import run

HEAD = """
import os, signal
from hami_py.slices.group_signals import GroupObserver
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
observer = GroupObserver()
"""


def observed(script: str) -> list[str]:
    """The output of a script that runs in a process group of its own."""
    done = run(
        [sys.executable, "-c", HEAD + script + "\nobserver.close()"], {"PYTHONPATH": str(ROOT)}
    )
    assert (done.code, done.err) == (0, "")
    return done.lines


def test_a_signal_to_the_group_is_received_until_a_reset() -> None:
    assert observed(
        "os.killpg(0, signal.SIGTERM)\n"
        "signal.sigwaitinfo({signal.SIGTERM})\n"
        "print(observer.received() == {signal.SIGTERM})\n"
        "print(observer.received() == {signal.SIGTERM})\n"
        "observer.reset()\n"
        "print(observer.received())"
    ) == ["True", "True", "set()"]


def test_a_signal_to_us_alone_is_not_one_of_the_group() -> None:
    assert observed(
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "signal.sigwaitinfo({signal.SIGTERM})\n"
        "print(observer.received())"
    ) == ["set()"]


def test_a_stopped_observer_ends() -> None:
    assert observed("os.kill(observer.pid, signal.SIGSTOP)\nprint('ended')") == ["ended"]


def test_a_failed_fork_is_reported() -> None:
    done = run(
        [
            sys.executable,
            "-c",
            "import os\n"
            "def none(): raise BlockingIOError(11, 'Resource temporarily unavailable')\n"
            "os.fork = none\n"
            "from hami_py.slices.group_signals import GroupObserver\n"
            "GroupObserver()",
        ],
        {"PYTHONPATH": str(ROOT)},
    )
    assert done.err.splitlines()[-1] == (
        "hami_py.errors.StateError: fork: Resource temporarily unavailable;"
        " end some of your processes, or raise `ulimit -u`"
    )
