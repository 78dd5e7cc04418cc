"""The process that tells whether a signal was sent to us alone."""

import sys

from support.artifacts import ROOT
from support.running import run

HEAD = """
import os, signal
from hami_py.slices.witness import Witness
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
witness = Witness()
"""


def witnessed(script: str) -> list[str]:
    """What a process tells that has a group of its own."""
    done = run(
        [sys.executable, "-c", HEAD + script + "\nwitness.close()"], {"PYTHONPATH": str(ROOT)}
    )
    assert (done.code, done.err) == (0, "")
    return done.lines


def test_what_was_sent_to_the_group_is_seen_once_and_no_more() -> None:
    assert witnessed(
        "os.killpg(0, signal.SIGTERM)\n"
        "signal.sigwaitinfo({signal.SIGTERM})\n"
        "print(witness.has_seen(signal.SIGUSR1))\n"
        "print(witness.has_seen(signal.SIGTERM))\n"
        "print(witness.has_seen(signal.SIGTERM))"
    ) == ["False", "True", "False"]


def test_what_was_sent_to_us_and_to_the_group_is_one_signal() -> None:
    """As `timeout` does, and here we are fast enough to get it twice."""
    assert witnessed(
        "os.killpg(0, signal.SIGTERM)\n"
        "signal.sigwaitinfo({signal.SIGTERM})\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "print(witness.has_seen(signal.SIGTERM), signal.sigpending())"
    ) == ["True set()"]


def test_what_is_forgotten_was_not_seen() -> None:
    assert witnessed(
        "os.killpg(0, signal.SIGTERM)\n"
        "signal.sigwaitinfo({signal.SIGTERM})\n"
        "witness.reset()\n"
        "print(witness.has_seen(signal.SIGTERM))"
    ) == ["False"]


def test_it_ends_also_where_it_was_stopped() -> None:
    assert witnessed("os.kill(witness._pid, signal.SIGSTOP)\nprint('ended')") == ["ended"]


def test_where_no_process_can_be_made_it_is_said() -> None:
    done = run(
        [
            sys.executable,
            "-c",
            "import os\n"
            "def none(): raise BlockingIOError(11, 'Resource temporarily unavailable')\n"
            "os.fork = none\n"
            "from hami_py.slices.witness import Witness\n"
            "Witness()",
        ],
        {"PYTHONPATH": str(ROOT)},
    )
    assert done.err.splitlines()[-1] == (
        "hami_py.errors.StateError: fork: Resource temporarily unavailable;"
        " end some of your processes, or raise `ulimit -u`"
    )
