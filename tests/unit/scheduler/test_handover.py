"""A replica takes over from another, and does not assign the cards of the other's writes again."""

from __future__ import annotations

import json
from typing import Any

from hami_py.scheduler.extender_api import BindArgs
from hami_py.scheduler.settings import Timing
from unit.scheduler.leases import ASSIGNMENT, Leases, Replica, given
from unit.scheduler.small import Small


def test_the_next_holder_waits_for_writes_of_the_previous_one() -> None:
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
    assert "the previous one may still be binding" in said[0]
    assert given(server) == 9_000
    # Of a lease that is seen to change, what counts is when it was seen.
    other.now_s = 106.5
    assert "the previous one may still be binding" in other.bind("second", "a")
    other.now_s = 107.5
    # The watch may be late; the API server is asked.
    assert "the watch has not yet reported that pod ml/first is bound" in other.bind("second", "a")
    other.told("first")
    assert other.fits("second", "a") == []
    assert given(server) == 9_000


def test_a_former_holder_does_not_bind_beside_the_next() -> None:
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
    other.now_s = 121.0
    one.now_s = 121.1
    said: list[str] = []

    def at_once(body: dict[str, Any]) -> None:
        if body["metadata"]["name"] == "second":
            server.before = lambda _: None
            said.append(one.bind("first", "a"))

    server.before = at_once
    assert other.bind("second", "a") == ""
    assert "other_c0ffee holds it, not the kube-scheduler on one" in said[0]
    assert given(server) == 10_000
    # It comes back later, and the other is the one who has lost it.
    server.take("one", 130.0)
    one.now_s = other.now_s = 160.0
    assert "one_c0ffee holds it" in other.bind("first", "a")
    assert "the watch has not yet reported that pod ml/second is bound" in one.bind("first", "a")
    one.told("second")
    assert one.fits("first", "a") == []
    assert given(server) == 10_000


def test_a_replica_that_acquires_the_lease_again_lists_the_node_again() -> None:
    """It was called so shortly before that, apart from the lease, no other can have been called."""
    server = Leases()
    one = Replica(server)
    one.now_s = 100.0
    for name in ("before", "late", "theirs"):
        one.create(name, 5_000)
    assert one.bind("before", "a") == ""
    one.told("before")
    server.take("other", 100.0)
    server.take("one", 100.0)
    one.now_s = 100.1
    assert "the previous one may still be binding" in one.bind("late", "a")
    # By another replica.
    bound = server.pods["theirs"]
    bound["spec"]["nodeName"] = "a"
    written = json.loads(server.pods["before"]["metadata"]["annotations"][ASSIGNMENT])
    bound["metadata"]["annotations"] = {ASSIGNMENT: json.dumps({**written, "pod": "uid-theirs"})}
    one.now_s = 104.9
    asked = one.verbs.arrived(BindArgs("late", "ml", "uid-late", "a"))
    one.now_s = 105.2
    said = one.verbs.bind(*asked).error
    assert "the watch has not yet reported that pod ml/theirs is bound" in said
    assert given(server) == 10_000


def test_a_holder_lists_once_however_long_it_is_idle() -> None:
    """A list of a large namespace is not read again after each pause."""
    server = Leases()
    one = Replica(server)
    one.now_s = 100.0
    lists = []
    get = server.get

    def counted(path: str, query: Any = None, *, deadline_s: float) -> bytes:
        if path.endswith("/pods"):
            lists.append(path)
        return get(path, query, deadline_s=deadline_s)

    server.get = counted  # type: ignore[method-assign]
    for name in ("first", "second"):
        one.create(name, 1_000)
        assert one.bind(name, "a") == ""
        one.told(name)
        assert len(lists) == 1
        one.now_s += 600.0


def test_the_time_of_a_binding_starts_with_the_request() -> None:
    """Many are asked for at once and wait for each other; the lease may be another's meanwhile."""
    small = Small(["a"]).listed()
    small.create("p", 1_000)
    asked = small.verbs.arrived(BindArgs("p", "ml", "uid-p", "a"))
    small.now_s += Timing().handover_s
    assert "there is no time left to bind it" in small.verbs.bind(*asked).error
    assert small.server.written == []
    assert small.bind("p", "a") == ""


def test_each_request_of_a_binding_gets_the_remaining_time() -> None:
    """The write is the last request: the next holder does not wait for anything later."""
    server = Leases()
    one = Replica(server)
    one.now_s = 100.0
    one.limit("ml")
    one.create("p", 1_000)
    deadlines: list[float] = []
    get, post = server.get, server.post

    def timed(deadline_s: float) -> None:
        deadlines.append(deadline_s)
        one.now_s += 0.125

    def timed_get(path: str, query: Any = None, *, deadline_s: float) -> bytes:
        timed(deadline_s)
        return get(path, query, deadline_s=deadline_s)

    def timed_post(path: str, body: Any, *, deadline_s: float) -> bytes:
        timed(deadline_s)
        return post(path, body, deadline_s=deadline_s)

    server.get, server.post = timed_get, timed_post  # type: ignore[method-assign]
    asked = one.verbs.arrived(BindArgs("p", "ml", "uid-p", "a"))
    one.now_s += 3.0
    assert one.verbs.bind(*asked).error == ""
    # The pod, the lease, the node, the namespace, and the write.
    assert deadlines == [1.0, 0.875, 0.75, 0.625, 0.5]
