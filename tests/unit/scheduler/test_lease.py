"""Whether kube-scheduler's lease is ours, and for how long by now."""

from __future__ import annotations

import socket
import time
from typing import Any, cast

import pytest

from hami_py.kube import ApiServer
from hami_py.kube.errors import Unavailable
from hami_py.scheduler.service import Scheduler
from hami_py.scheduler.settings import SchedulerSettings, Timing
from hami_py.serving import Listen
from unit.scheduler import leases
from unit.scheduler.leases import LASTS_S, TAKEN_AT_S, Leases, Replica, given, leader
from unit.scheduler.small import Object, Small


def test_with_different_clocks_a_new_holder_waits_by_its_own() -> None:
    replica = Replica(Leases())
    replica.now_s = 50.0
    replica.skew_s = -1_000.0
    replica.create("p", 1_000)
    assert "the previous one may still be binding" in replica.bind("p", "a")
    replica.now_s += Timing().handover_s
    assert replica.bind("p", "a") == ""


@pytest.mark.parametrize("is_here", [True, False])
def test_the_time_of_another_host_is_not_compared_with_ours(is_here: bool) -> None:
    """Its kube-scheduler has just taken the lease, by a clock that is an hour behind ours."""
    host = socket.gethostname() if is_here else "elsewhere"
    small, server = Small(["a"]), Leases()
    server.holder, server.taken_s = f"{host}_c0ffee", time.time() - 3600
    settings = SchedulerSettings(
        Listen("127.0.0.1", 0),
        lease=("hami-system", "hami-scheduler"),
        lease_holder=None if is_here else host,
        timing=Timing(bind_s=600),
        pod_selector="",
        requeue="",
    )
    small.server = server
    scheduler = Scheduler(cast(ApiServer, server), settings)
    try:
        small.cluster, small.verbs = scheduler.cluster, scheduler.verbs
        small.listed().create("p", 1_000)
        said = small.bind("p", "a")
    finally:
        scheduler.stop()
    assert ("the previous one may still be binding" in said) is not is_here
    assert given(server) == (1_000 if is_here else 0)


@pytest.mark.parametrize(("then_s", "now_s"), [(0.0, 3600.0), (-3600.0, -1800.0)])
def test_a_changed_clock_makes_no_replica_the_holder_for_long(then_s: float, now_s: float) -> None:
    """As after a machine stood still: kube-scheduler takes the lease, then the clock is set."""
    server = Leases()
    replica = Replica(server)
    replica.now_s = 50.0
    server.take("one", replica.now_s + then_s)
    replica.skew_s = now_s
    replica.create("p", 1_000)
    assert "the previous one may still be binding" in replica.bind("p", "a")
    assert given(server) == 0
    replica.now_s += Timing().handover_s
    assert replica.bind("p", "a") == ""


def test_the_wait_counts_from_the_end_of_the_read() -> None:
    """The answer took two seconds: the holder before may have begun a binding in the first."""
    server = Leases()
    replica = Replica(server)
    replica.now_s, replica.skew_s = 50.0, -1_000.0
    replica.create("p", 1_000)

    def slow() -> None:
        replica.now_s += 2.0
        server.looking = lambda: None

    server.looking = slow
    assert "the previous one may still be binding" in replica.bind("p", "a")
    replica.now_s = 52.0 + Timing().handover_s - 0.5
    assert "the previous one may still be binding" in replica.bind("p", "a")
    assert given(server) == 0
    replica.now_s += 0.5
    assert replica.bind("p", "a") == ""


def test_the_author_of_a_pod_reads_no_api_path_while_a_new_leader_waits() -> None:
    replica = Replica(Leases())
    replica.now_s, replica.skew_s = 50.0, -1_000.0
    replica.create("p", 1_000)
    told = "a new scheduler has just taken over: the previous one may still be binding; the pod is "
    assert replica.bind("p", "a") == f"{told}tried again in 5 s"
    replica.now_s += 1.5
    assert replica.bind("p", "a") == f"{told}tried again in 4 s"


def test_a_replica_that_acquires_the_lease_again_waits_again() -> None:
    """It was another's in between, of which this one has seen nothing."""
    server = Leases()
    replica = leader(server, "p", "q")
    assert replica.bind("p", "a") == ""
    server.take("other", 101.0)
    server.take("one", 110.0)
    replica.now_s = 110.5
    assert "the previous one may still be binding" in replica.bind("q", "a")
    assert given(server) == 1_000
    replica.now_s += Timing().handover_s
    assert replica.bind("q", "a") == ""


def test_the_lifetime_counts_from_the_start_of_the_read() -> None:
    """The answer took three seconds, which are none of its life."""
    server = Leases()
    server.is_renewed = False
    replica = leader(server, "p", "q")

    def slow() -> None:
        replica.now_s += 3.0
        server.looking = lambda: None

    server.looking = slow
    assert replica.bind("p", "a") == ""
    replica.now_s = 100.0 + LASTS_S + 1
    assert "has not renewed it for 16.0 s; it expires after 15 s" in replica.bind("q", "a")
    assert given(server) == 1_000


@pytest.mark.parametrize("holder", ["", "one", "one-more_c0ffee", "x_one_c0ffee"])
def test_no_replica_binds_if_the_holder_is_not_on_its_host(holder: str) -> None:
    server = Leases()
    server.holder = holder
    replica = Replica(server)
    replica.now_s = 100.0
    replica.create("p", 1_000)
    said = replica.bind("p", "a")
    assert f"{holder or 'no replica'} holds it, not the kube-scheduler on one" in said
    assert "--lease-holder" in said
    assert given(server) == 0


def test_a_lease_that_is_not_renewed_is_not_held() -> None:
    """By this clock, and by what was seen to change: the one that renews it has another."""
    server = Leases()
    server.is_renewed = False
    replica = leader(server, "p", "q")
    assert replica.bind("p", "a") == ""
    replica.now_s += LASTS_S + 1
    assert "has not renewed it for 16.0 s; it expires after 15 s" in replica.bind("q", "a")
    assert given(server) == 1_000
    server.is_renewed = True
    replica.now_s += 1
    assert replica.bind("q", "a") == ""


@pytest.mark.parametrize(
    "change",
    [
        {"holderIdentity": "one_beef"},
        {"acquireTime": leases.time(TAKEN_AT_S + 110)},
        {"leaseTransitions": 7},
    ],
    ids="".join,
)
def test_each_field_that_shows_another_holder_restarts_the_wait(change: Object) -> None:
    server = Leases()
    server.more = {"acquireTime": None}
    replica = leader(server, "p", "q")
    assert "the previous one may still be binding" in replica.bind("p", "a")
    replica.now_s = 110.0
    assert replica.bind("p", "a") == ""
    server.more = {**server.more, **change}
    replica.now_s = 110.5
    assert "the previous one may still be binding" in replica.bind("q", "a")
    assert given(server) == 1_000


def test_a_recreated_lease_is_another_lease() -> None:
    """Its changes are counted from 0 again."""
    server = Leases()
    server.transitions = 0
    replica = leader(server, "p", "q")
    assert replica.bind("p", "a") == ""
    server.taken_s = None
    replica.now_s = 120.0
    # However often it is looked for.
    for _ in range(2):
        assert "it was deleted" in replica.bind("q", "a")
    server.taken_s = TAKEN_AT_S + 120.0
    assert "the previous one may still be binding" in replica.bind("q", "a")
    assert given(server) == 1_000
    replica.now_s += Timing().handover_s
    assert replica.bind("q", "a") == ""


def test_an_acquisition_may_take_as_long_as_the_lease_lasts() -> None:
    """It notes the time first; the write may come seconds later, and others bind until then."""
    server = Leases()
    replica = Replica(server)
    replica.now_s = LASTS_S + Timing().handover_s - 0.5
    replica.create("p", 1_000)
    assert "the previous one may still be binding" in replica.bind("p", "a")
    replica.now_s += 0.6
    assert replica.bind("p", "a") == ""


def test_without_a_lease_there_is_no_other_holder() -> None:
    """One that was there until a moment ago would not be either, and its holder may be binding."""
    server = Leases()
    server.taken_s = None
    replica = leader(server, "p")
    for _ in range(2):
        assert "it was first found missing" in replica.bind("p", "a")
        replica.now_s += Timing().handover_s / 2
    assert given(server) == 0
    assert replica.bind("p", "a") == ""


@pytest.mark.parametrize(
    "more",
    [
        {"acquireTime": "0001-01-01T00:00:00"},
        {"renewTime": "2026-01-01T00:00:00"},
        {"acquireTime": "yesterday"},
        {"holderIdentity": 3},
    ],
)
def test_a_lease_with_an_invalid_field_is_not_trusted(more: dict[str, Any]) -> None:
    """Also a time without a zone, which is ambiguous."""
    server = Leases()
    server.more = more
    replica = Replica(server)
    replica.now_s = 100.0
    replica.create("p", 1_000)
    assert "it is invalid" in replica.bind("p", "a")
    assert given(server) == 0


@pytest.mark.parametrize("lease", ["unreadable", "away"])
def test_while_the_lease_cannot_be_read_nothing_is_bound(lease: str) -> None:
    server = Leases()
    replica = Replica(server)
    replica.now_s = 100.0
    replica.create("p", 1_000)
    get = server.get

    def broken(path: str, query: Any = None, *, deadline_s: float) -> bytes:
        if "/leases/" not in path:
            return get(path, query, deadline_s=deadline_s)
        if lease == "away":
            raise Unavailable(f"GET {path}", "no answer", "try again later")
        return b'{"spec": 3}'

    server.get = broken  # type: ignore[method-assign]
    assert replica.bind("p", "a") != ""
    assert given(server) == 0


def test_a_long_time_holder_does_not_wait() -> None:
    server = Leases()
    replica = Replica(server)
    for at in range(3):
        replica.now_s += 100.0
        replica.create(f"p{at}", 1_000)
        assert replica.bind(f"p{at}", "a") == ""
