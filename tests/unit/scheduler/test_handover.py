"""One replica takes over from another: what the one before has sent must not be given once more."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

import pytest

from hami_py.kube.errors import NotFound, Unavailable
from hami_py.scheduler.lease import Lease
from hami_py.scheduler.verbs import Timing, Verbs
from hami_py.scheduler.wire import BindArgs
from unit.scheduler.small import SECOND, Server, Small

ASSIGNMENT = "hami.io/assignment"
TAKEN_AT_S = 1_800_000_000.0
LASTS_S = 15


class Leases(Server):
    """An API server that also has kube-scheduler's lease."""

    def __init__(self) -> None:
        super().__init__()
        self.taken_s: float | None = TAKEN_AT_S
        self.transitions = 1
        self.holder = "one_c0ffee"
        self.is_renewed = True
        self.more: dict[str, Any] = {}
        self._renewals = 0

    def get(self, path: str, query: Any = None, *, deadline_s: float) -> bytes:
        if "/leases/" not in path:
            return super().get(path, query, deadline_s=deadline_s)
        assert path == "/apis/coordination.k8s.io/v1/namespaces/hami-system/leases/hami-scheduler"
        if self.taken_s is None:
            raise NotFound(f"GET {path}", "404: not found", "forget it", 404)
        self._renewals += self.is_renewed
        spec = {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": LASTS_S,
            "acquireTime": time(self.taken_s),
            # Nobody compares it with a clock: hosts' clocks differ.
            "renewTime": time(1_000_000 + self._renewals),
            "leaseTransitions": self.transitions,
            **self.more,
        }
        return json.dumps({"metadata": {"name": "hami-scheduler"}, "spec": spec}).encode()

    def take(self, replica: str, at_s: float) -> None:
        """The kube-scheduler of a replica takes it, by the replicas' clock."""
        self.holder, self.taken_s = f"{replica}_c0ffee", TAKEN_AT_S + at_s
        self.transitions += 1


def time(seconds: float) -> str:
    """As Kubernetes writes it (MicroTime)."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()


class Replica(Small):
    """One of two over one API server; time of day and of its clock go on alike."""

    def __init__(self, server: Leases, host: str = "one") -> None:
        super().__init__(["a"])
        self.server = server
        lease = Lease(
            server,  # type: ignore[arg-type]
            ("hami-system", "hami-scheduler"),
            holder=host,
            wait_s=Timing().bind_s,
            clock_ns=lambda: int(self.now_s * SECOND),
            wall_s=lambda: TAKEN_AT_S + self.now_s + self.skew_s,
        )
        self.skew_s = 0.0
        self.verbs = Verbs(
            self.cluster,
            server,  # type: ignore[arg-type]
            Timing(),
            lambda: int(self.now_s * SECOND),
            lease=lease,
        )
        self.listed()


def given(server: Server) -> int:
    """MiB on all cards, by the annotations of what is bound."""
    bound = [pod for pod in server.pods.values() if pod["spec"].get("nodeName")]
    written = [json.loads(pod["metadata"]["annotations"][ASSIGNMENT]) for pod in bound]
    containers = [grants for one in written for grants in one["containers"].values()]
    return sum(grant["memory_mib"] for grants in containers for grant in grants)


def test_the_next_holder_waits_for_what_the_one_before_has_sent() -> None:
    """kube-scheduler gives its lease back when it ends, and the next has it within a second."""
    server = Leases()
    one, other = Replica(server), Replica(server, "other")
    one.now_s = 100.0
    one.create("first", 9_000)
    one.create("second", 9_000)
    said: list[str] = []

    def slow(body: dict[str, Any]) -> None:
        if body["metadata"]["name"] == "first":
            one.now_s += 3.0
            server.take("other", 101.0)
            other.now_s = 102.0
            assert other.fits("second", "a") == ["a"]
            said.append(other.bind("second", "a"))

    server.before = slow
    assert one.bind("first", "a") == ""
    assert "the one before may still be binding" in said[0]
    assert given(server) == 9_000
    # Of a lease that is seen to change, what counts is when it was seen.
    other.now_s = 105.5
    assert "the one before may still be binding" in other.bind("second", "a")
    other.now_s = 106.5
    # The watch may be late; the API server is asked.
    assert "the watch has not told yet that pod ml/first is bound" in other.bind("second", "a")
    other.told("first")
    assert other.fits("second", "a") == []
    assert given(server) == 9_000


def test_who_has_the_lease_for_long_does_not_wait() -> None:
    server = Leases()
    replica = Replica(server)
    for at in range(3):
        replica.now_s += 100.0
        replica.create(f"p{at}", 1_000)
        assert replica.bind(f"p{at}", "a") == ""


def test_where_clocks_differ_who_begins_waits_by_its_own() -> None:
    replica = Replica(Leases())
    replica.now_s = 50.0
    replica.skew_s = -1_000.0
    replica.create("p", 1_000)
    assert "the one before may still be binding" in replica.bind("p", "a")
    replica.now_s += Timing().bind_s
    assert replica.bind("p", "a") == ""


def test_one_that_went_on_asking_does_not_bind_beside_the_next_holder() -> None:
    """A kube-scheduler that stood still sends what it has decided before it notices."""
    server = Leases()
    one, other = Replica(server), Replica(server, "other")
    one.now_s = other.now_s = 100.0
    for name in ("before", "first", "second"):
        one.create(name, 5_000)
    assert one.bind("before", "a") == ""
    for replica in (one, other):
        replica.told("before")
    server.take("other", 101.0)
    other.now_s = 120.0
    one.now_s = 120.1
    said: list[str] = []

    def at_once(body: dict[str, Any]) -> None:
        if body["metadata"]["name"] == "second":
            server.before = lambda _: None
            said.append(one.bind("first", "a"))

    server.before = at_once
    assert other.bind("second", "a") == ""
    assert "other_c0ffee has it, and not the kube-scheduler on one" in said[0]
    assert given(server) == 10_000
    # It comes back later, and the other is the one who has lost it.
    server.take("one", 130.0)
    one.now_s = other.now_s = 160.0
    assert "one_c0ffee has it" in other.bind("first", "a")
    assert "the watch has not told yet that pod ml/second is bound" in one.bind("first", "a")
    one.told("second")
    assert one.fits("first", "a") == []
    assert given(server) == 10_000


def test_the_lease_is_read_after_a_binding_was_asked_for() -> None:
    """Another may have taken it between two of them, however shortly one follows the other."""
    server = Leases()
    one = Replica(server)
    one.now_s = 100.0
    for name in ("first", "second"):
        one.create(name, 1_000)
    assert one.bind("first", "a") == ""
    server.take("other", 100.0)
    one.now_s += 0.001
    assert "other_c0ffee has it" in one.bind("second", "a")
    assert given(server) == 1_000


def test_many_bindings_at_once_read_it_together() -> None:
    server = Leases()
    one = Replica(server)
    one.now_s = 100.0
    reads: list[str] = []
    get = server.get

    def counting(path: str, query: Any = None, *, deadline_s: float) -> bytes:
        reads.extend([path] if "/leases/" in path else [])
        return get(path, query, deadline_s=deadline_s)

    server.get = counting  # type: ignore[method-assign]
    asked = []
    for at in range(5):
        one.create(f"p{at}", 1_000)
        asked.append(one.verbs.arrived(BindArgs(f"p{at}", "ml", f"uid-p{at}", "a")))
    one.now_s += 0.5
    assert [one.verbs.bind(*each).error for each in asked] == [""] * 5
    assert len(reads) == 1


@pytest.mark.parametrize("holder", ["", "one", "one-more_c0ffee", "x_one_c0ffee"])
def test_nobody_binds_with_a_lease_that_names_no_kube_scheduler_of_this_host(holder: str) -> None:
    server = Leases()
    server.holder = holder
    replica = Replica(server)
    replica.now_s = 100.0
    replica.create("p", 1_000)
    said = replica.bind("p", "a")
    assert f"{holder or 'nobody'} has it, and not the kube-scheduler on one" in said
    assert "--lease-holder" in said
    assert given(server) == 0


def test_a_lease_that_is_not_renewed_is_not_held() -> None:
    """By this clock, and by what was seen to change: the one that renews it has another."""
    server = Leases()
    server.is_renewed = False
    replica = Replica(server)
    replica.now_s = 100.0
    for name in ("p", "q"):
        replica.create(name, 1_000)
    assert replica.bind("p", "a") == ""
    replica.now_s += LASTS_S + 1
    assert "has not renewed it for 16.0 s, and it lasts 15 s" in replica.bind("q", "a")
    assert given(server) == 1_000
    server.is_renewed = True
    replica.now_s += 1
    assert replica.bind("q", "a") == ""


def test_a_lease_that_was_made_anew_is_another() -> None:
    """Its changes are counted from 0 again."""
    server = Leases()
    server.transitions = 0
    replica = Replica(server)
    replica.now_s = 100.0
    for name in ("p", "q"):
        replica.create(name, 1_000)
    assert replica.bind("p", "a") == ""
    server.taken_s = None
    replica.now_s += 0.1
    assert "it is gone" in replica.bind("q", "a")
    server.taken_s = TAKEN_AT_S + 100.1
    assert "the one before may still be binding" in replica.bind("q", "a")
    assert given(server) == 1_000
    replica.now_s += Timing().bind_s
    assert replica.bind("q", "a") == ""


def test_a_holder_that_took_long_to_take_it_has_not_had_it_since() -> None:
    """It notes the time first; the write may come seconds later, and others bind until then."""
    server = Leases()
    replica = Replica(server)
    replica.now_s = LASTS_S + Timing().bind_s - 0.5
    replica.create("p", 1_000)
    assert "the one before may still be binding" in replica.bind("p", "a")
    replica.now_s += 0.6
    assert replica.bind("p", "a") == ""


def test_without_a_lease_there_is_no_other() -> None:
    server = Leases()
    server.taken_s = None
    replica = Replica(server)
    replica.create("p", 1_000)
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
def test_a_lease_with_a_field_that_is_none_is_not_believed(more: dict[str, Any]) -> None:
    """A time without a zone, too: it is nobody knows when."""
    server = Leases()
    server.more = more
    replica = Replica(server)
    replica.now_s = 100.0
    replica.create("p", 1_000)
    assert "it cannot be read" in replica.bind("p", "a")
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


def test_the_time_of_a_binding_begins_when_it_is_asked_for() -> None:
    """Many are asked for at once and wait for each other; the lease may be another's meanwhile."""
    small = Small(["a"]).listed()
    small.create("p", 1_000)
    asked = small.verbs.arrived(BindArgs("p", "ml", "uid-p", "a"))
    small.now_s += Timing().bind_s
    assert "there is no time left to bind it" in small.verbs.bind(*asked).error
    assert small.server.written == []
    assert small.bind("p", "a") == ""
