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


class Leases(Server):
    """An API server that also has kube-scheduler's lease."""

    def __init__(self) -> None:
        super().__init__()
        self.taken_s: float | None = TAKEN_AT_S
        self.transitions = 1

    def get(self, path: str, query: Any = None, *, deadline_s: float) -> bytes:
        if "/leases/" not in path:
            return super().get(path, query, deadline_s=deadline_s)
        assert path == "/apis/coordination.k8s.io/v1/namespaces/hami-system/leases/hami-scheduler"
        if self.taken_s is None:
            raise NotFound(f"GET {path}", "404: not found", "forget it", 404)
        taken = datetime.fromtimestamp(self.taken_s, timezone.utc).isoformat()
        spec = {"holderIdentity": "x", "acquireTime": taken, "leaseTransitions": self.transitions}
        return json.dumps({"metadata": {"name": "hami-scheduler"}, "spec": spec}).encode()


class Replica(Small):
    """One of two over one API server; time of day and of its clock go on alike."""

    def __init__(self, server: Leases) -> None:
        super().__init__(["a"])
        self.server = server
        lease = Lease(
            server,  # type: ignore[arg-type]
            ("hami-system", "hami-scheduler"),
            Timing().bind_s,
            lambda: TAKEN_AT_S + self.now_s + self.skew_s,
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
    one, other = Replica(server), Replica(server)
    one.now_s = 100.0
    one.create("first", 9_000)
    one.create("second", 9_000)
    said: list[str] = []

    def slow(body: dict[str, Any]) -> None:
        if body["metadata"]["name"] == "first":
            one.now_s += 3.0
            server.taken_s, server.transitions = TAKEN_AT_S + 101.0, 2
            other.now_s = 102.0
            assert other.fits("second", "a") == ["a"]
            said.append(other.bind("second", "a"))

    server.before = slow
    assert one.bind("first", "a") == ""
    assert "the one before may still be binding" in said[0]
    assert given(server) == 9_000
    other.now_s = 105.5
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
    replica.skew_s = -1_000.0
    replica.now_s = 50.0
    replica.create("p", 1_000)
    assert "the one before may still be binding" in replica.bind("p", "a")
    replica.now_s += Timing().bind_s
    assert replica.bind("p", "a") == ""


def test_without_a_lease_there_is_no_other() -> None:
    server = Leases()
    server.taken_s = None
    replica = Replica(server)
    replica.create("p", 1_000)
    assert replica.bind("p", "a") == ""


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
