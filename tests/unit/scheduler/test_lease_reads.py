"""When kube-scheduler's lease is read, and for whom one answer counts."""

from __future__ import annotations

import threading

import pytest

from hami_py.kube.errors import Unavailable
from hami_py.scheduler.extender_api import BindArgs
from hami_py.scheduler.settings import Timing
from unit.scheduler.leases import TAKEN_AT_S, Leases, given, leader


def test_the_lease_is_read_after_the_request_for_a_binding() -> None:
    """Another may have taken it between two of them, however shortly one follows the other."""
    server = Leases()
    one = leader(server, "first", "second")
    assert one.bind("first", "a") == ""
    server.take("other", 100.0)
    one.now_s += 0.001
    assert "other_c0ffee holds it" in one.bind("second", "a")
    assert given(server) == 1_000


def test_a_read_in_progress_is_not_used_for_a_later_request() -> None:
    """It may be of before: another has taken the lease since."""
    server = Leases()
    one = leader(server, "first", "second")
    asked: list[tuple[BindArgs, int]] = []

    def slow() -> None:
        one.now_s += 1.0
        asked.append(one.verbs.arrived(BindArgs("second", "ml", "uid-second", "a")))
        server.looking = lambda: None

    server.looking = slow
    assert one.bind("first", "a") == ""
    server.take("other", 101.5)
    assert "other_c0ffee holds it" in one.verbs.bind(*asked[0]).error
    assert given(server) == 1_000


def test_a_shared_read_is_waited_for_until_the_own_deadline() -> None:
    server = Leases()
    one = leader(server)
    said: list[str] = []

    def at_once() -> None:
        server.looking = lambda: None
        try:
            one.lease.check(0, lambda: 0.001)
        except Unavailable as error:
            said.append(str(error))

    beside = threading.Thread(target=at_once)

    def slow() -> None:
        beside.start()
        beside.join(20)

    server.looking = slow
    one.create("p", 1_000)
    assert one.bind("p", "a") == ""
    beside.join(60)
    assert ["it could not be read in time" in each for each in said] == [True]


@pytest.mark.parametrize("taken_s", [TAKEN_AT_S, None])
def test_concurrent_bindings_share_a_read(taken_s: float | None) -> None:
    """Also where there is none."""
    server = Leases()
    server.taken_s = taken_s
    one = leader(server, "first")
    # Where there is none, that is believed after a while.
    assert one.bind("first", "a") == "" or taken_s is None
    one.now_s += Timing().handover_s
    reads: list[float] = []

    def slow() -> None:
        reads.append(one.now_s)
        one.now_s += 0.1

    server.looking = slow
    asked = []
    for at in range(5):
        one.create(f"p{at}", 1_000)
        asked.append(one.verbs.arrived(BindArgs(f"p{at}", "ml", f"uid-p{at}", "a")))
    one.now_s += 0.5
    assert [one.verbs.bind(*each).error for each in asked] == [""] * 5
    assert len(reads) == 1


def test_a_missing_lease_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """It may be another's name that was given."""
    server = Leases()
    server.taken_s = None
    one = leader(server, "first", "second")
    assert "it was first found missing" in one.bind("first", "a")
    assert not caplog.messages
    one.now_s += Timing().handover_s
    assert [one.bind(name, "a") for name in ("first", "second")] == ["", ""]
    (said,) = [text for text in caplog.messages if "/leases/" in text]
    assert "there is no such lease" in said
    assert "check that --lease names" in said
