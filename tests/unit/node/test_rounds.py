"""Steps that are taken again and again, whatever fails."""

import threading

import pytest

from hami_py.errors import StateError
from hami_py.node.rounds import Rounds
from support.launcher import until

LONG = 3600.0


def test_a_step_that_fails_ends_neither_the_round_nor_the_thread() -> None:
    taken: list[str] = []

    def known() -> None:
        taken.append("known")
        raise StateError("the ledger", "No space left on device", "free some space")

    def unknown() -> None:
        taken.append("unknown")
        raise ZeroDivisionError

    rounds = Rounds("test", [known, unknown, lambda: taken.append("last")], LONG)
    rounds.start()
    until(lambda: len(taken) == 3, "the first round is done")
    rounds.wake()
    until(lambda: len(taken) == 6, "the next round is done before its time")
    assert rounds.is_running
    rounds.stop()
    assert not rounds.is_running
    assert taken == ["known", "unknown", "last"] * 2


def test_rounds_end_when_their_caller_says_so() -> None:
    stopping = threading.Event()
    taken: list[None] = []

    def last() -> None:
        taken.append(None)
        stopping.set()
        rounds.wake()

    rounds = Rounds("test", [last], LONG, stopping)
    rounds.run()
    rounds.run()
    assert taken == [None]


def test_a_step_that_hangs_does_not_keep_its_agent_from_ending() -> None:
    hangs, goes_on = threading.Event(), threading.Event()

    def hang() -> None:
        hangs.set()
        goes_on.wait()

    rounds = Rounds("test", [hang], LONG)
    rounds.start()
    assert hangs.wait(60.0)
    rounds.stop()
    assert rounds.is_running
    goes_on.set()
    until(lambda: not rounds.is_running, "it has ended")


def test_an_error_is_logged_when_it_is_a_new_one(caplog: pytest.LogCaptureFixture) -> None:
    errors = iter(["full", "full", "read-only", None, "read-only"])
    stopping = threading.Event()

    def fails() -> None:
        rounds.wake()
        error = next(errors, "end")
        if error == "end":
            stopping.set()
        elif error is not None:
            raise StateError("the ledger", error, "free some space")

    rounds = Rounds("test", [fails], LONG, stopping)
    rounds.run()
    said = [message.split(": ")[2].split(";")[0] for message in caplog.messages]
    assert said == ["full", "read-only", "read-only"]
