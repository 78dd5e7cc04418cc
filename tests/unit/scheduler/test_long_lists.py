"""A namespace with a quota whose pods are too many to be listed within one binding's time."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from cluster import recordings
from hami_py.kube import ApiServer
from hami_py.kube.errors import Unavailable
from hami_py.kube.server import Status, failure
from hami_py.scheduler.service import Scheduler
from hami_py.scheduler.settings import SchedulerSettings, Timing
from hami_py.serving import Listen
from support.launcher import until
from unit.scheduler.leases import ASSIGNMENT, Leases, Replica, given
from unit.scheduler.small import Object, Small

PAGES = 4
PATH = "/api/v1/namespaces/ml/pods"


class Large(Leases):
    """Of ``ml`` there are four pages, as they were when the first was asked for.

    ``paging`` is told with what and for how long each is asked for, and may raise.
    """

    def __init__(self) -> None:
        super().__init__()
        self.paging: Callable[[str, float], None] = lambda _, __: None
        self.asked: list[str] = []
        self._then: dict[str, Object] = {}
        for number in range(PAGES * 500 - 1):
            metadata = {"name": f"p{number:04}", "namespace": "ml", "uid": f"uid-p{number}"}
            self.pods[metadata["name"]] = {"metadata": metadata, "spec": {"nodeName": "z"}}

    def get(self, path: str, query: Any = None, *, deadline_s: float) -> bytes:
        if path != PATH or "status.phase" not in query["fieldSelector"]:
            return super().get(path, query, deadline_s=deadline_s)
        rest = query.get("continue", "")
        self.asked.append(rest)
        self.paging(rest, deadline_s)
        if not rest:
            self._then = json.loads(json.dumps(self.pods))
        now, self.pods = self.pods, self._then
        try:
            return super().get(path, query, deadline_s=deadline_s)
        finally:
            self.pods = now

    def end(self, name: str) -> None:
        """The pod is deleted."""
        del self.pods[name]


def slow(replica: Replica, takes_s: float) -> Callable[[str, float], None]:
    """Each page takes so long by the replica's clock; a request with less time gets none."""

    def takes(_: str, deadline_s: float) -> None:
        replica.now_s += min(takes_s, deadline_s)
        if deadline_s < takes_s:
            raise Unavailable(f"GET {PATH}", "no answer from the API server", "try again later")

    return takes


def goes_on(replica: Replica) -> None:
    """The work of the service's thread, until there is nothing left to read."""
    for _ in range(100):
        if not replica.verbs.binder.continue_listing():
            return
    raise AssertionError("it reads for ever")


def theirs(server: Large, name: str, uid: str) -> Object:
    """Another replica has bound the pod to ``a``: it has 9,000 of 10,000 MiB."""
    grant = {"card": "GPU-a-0", "memory_mib": 9_000, "cores": 0}
    written = {"version": 1, "pod": uid, "node": "a", "containers": {"main": [grant]}}
    pod = server.pods[name]
    pod["spec"]["nodeName"] = "a"
    pod["metadata"]["annotations"] = {ASSIGNMENT: json.dumps(written)}
    return pod


def large() -> tuple[Replica, Large]:
    """A replica that has the lease for long, and a pod of 2,000 MiB that waits."""
    server = Large()
    replica = Replica(server)
    replica.now_s = 100.0
    replica.limit("ml")
    replica.create("new", 2_000)
    replica.told("new")
    return replica, server


@pytest.mark.parametrize(
    ("takes_s", "listed", "asked"),
    [
        (1.5, 1000, ["", "500", "1000", "1000", "1500"]),
        # Not even one page comes within the time of a binding.
        (30.0, 0, ["", "", "500", "1000", "1500"]),
    ],
)
def test_the_list_is_completed_beside_the_bindings(
    takes_s: float, listed: int, asked: list[str]
) -> None:
    replica, server = large()
    server.paging = slow(replica, takes_s)
    assert PATH in replica.bind("new", "a")
    for _ in range(3):
        # No request starts it again, or waits for it.
        assert f"{listed} pods are listed so far" in replica.bind("new", "a")
        replica.now_s += 10.0
    goes_on(replica)
    assert replica.bind("new", "a") == ""
    assert server.asked == asked
    # Under the same lease it is not listed again.
    replica.create("more", 2_000)
    replica.now_s += 600.0
    assert replica.bind("more", "a") == ""
    assert server.asked == asked


@pytest.mark.parametrize("page", [1, PAGES])
def test_pods_of_the_previous_leader_count_on_every_page(page: int) -> None:
    replica, server = large()
    name = f"p{page * 500 - 2:04}"
    replica.server.pods.pop(name)
    replica.create(name, 9_000)
    # Where the name stands in the order of the list.
    server.pods = dict(sorted(server.pods.items()))
    theirs(server, name, f"uid-{name}")
    get = server.get

    def nobody_on_the_node(path: str, query: Any = None, *, deadline_s: float) -> bytes:
        if "spec.nodeName" in (query or {}).get("fieldSelector", ""):
            query = {**query, "fieldSelector": "spec.nodeName=nowhere"}
        return get(path, query, deadline_s=deadline_s)

    server.get = nobody_on_the_node  # type: ignore[method-assign]
    server.paging = slow(replica, 1.5)
    assert PATH in replica.bind("new", "a")
    goes_on(replica)
    for _ in range(2):
        said = replica.bind("new", "a")
        assert f"the watch has not yet reported that pod ml/{name} is bound" in said
    assert given(with_cards(server)) == 9_000
    replica.told(name)
    assert replica.fits("new", "a") == []
    assert replica.bind("new", "a") != ""
    assert given(with_cards(server)) == 9_000


def with_cards(server: Large) -> Leases:
    """The server, with those of its pods alone that were given a card."""
    found = Leases()
    found.pods = {n: p for n, p in server.pods.items() if p["metadata"].get("annotations")}
    return found


def test_a_pod_deleted_during_the_list_is_not_waited_for() -> None:
    """Later pages are as old as the first one, and the watch has reported the deletions."""
    replica, server = large()
    gone = [f"p{number:04}" for number in range(1400, 1900, 100)]
    for name in gone:
        replica.server.pods.pop(name)
        replica.create(name, 1)
        theirs(server, name, f"uid-{name}")
        replica.told(name)
    server.pods = dict(sorted(server.pods.items()))
    server.paging = slow(replica, 1.5)
    assert PATH in replica.bind("new", "a")
    for name in gone:
        seen = replica.seen(name)
        server.end(name)
        replica.cluster.pods.deleted(seen)
    goes_on(replica)
    assert replica.bind("new", "a") == ""
    assert server.asked.count("") == 1


def expired(rest: str) -> Exception:
    """As the API server says it, with what to go on with."""
    said = recordings.read("list-continue-410")
    body = json.dumps({**said, "metadata": {"continue": rest} if rest else {}})
    return failure(f"GET {PATH}", 410, msgspec.json.decode(body, type=Status))


@pytest.mark.parametrize("rest", ["1000", "", None])
@pytest.mark.parametrize("is_beside", [True, False])
def test_an_expired_page_is_read_in_its_present_state(rest: str | None, is_beside: bool) -> None:
    """A list that takes minutes would restart forever. Another server may not know such a page."""
    replica, server = large()
    usual = slow(replica, 1.5 if is_beside else 0.0)
    went: list[str] = []

    def too_old(asked: str, deadline_s: float) -> None:
        usual(asked, deadline_s)
        if asked == "1000" and not went:
            went.append(asked)
            raise failure(f"GET {PATH}", 400, Status()) if rest is None else expired(rest)

    server.paging = too_old
    assert replica.bind("new", "a") != ""
    goes_on(replica)
    for _ in range(3):
        said = replica.bind("new", "a")
        goes_on(replica)
    assert said == ""
    assert server.asked.count("") == (1 if rest else 2)
    assert server.asked.count("1500") == 1


def test_a_restarted_list_counts_from_zero() -> None:
    replica, server = large()

    def too_old(asked: str, _: float) -> None:
        if asked == "1000":
            raise expired("")

    server.paging = too_old
    assert "410" in replica.bind("new", "a")
    server.paging = slow(replica, 1.5)
    assert PATH in replica.bind("new", "a")
    assert "1000 pods are listed so far" in replica.bind("new", "a")


def test_a_page_that_two_have_read_counts_once() -> None:
    """Another binding has listed all of it while the first page was on its way."""
    replica, server = large()
    server.end("p0000")
    replica.create("more", 2_000)
    replica.told("more")

    def beside(*_: object) -> None:
        server.paging = lambda *_: None
        assert replica.bind("more", "a") == ""

    server.paging = beside
    assert replica.bind("new", "a") == ""
    assert server.asked == ["", "", "500", "1000", "1500"]


def test_a_failure_leaves_the_list_to_the_next_binding() -> None:
    replica, server = large()
    usual = slow(replica, 1.5)
    server.paging = usual
    assert PATH in replica.bind("new", "a")

    def fails(*_: object) -> None:
        raise failure(f"GET {PATH}", 500, Status("etcdserver: leader changed"))

    server.paging = fails
    goes_on(replica)
    assert "etcdserver: leader changed" in replica.bind("new", "a")
    server.paging = usual
    asked = len(server.asked)
    goes_on(replica)
    assert len(server.asked) == asked
    assert replica.bind("new", "a") == ""
    assert server.asked == ["", "500", "1000", "1000", "1000", "1000", "1500"]


def test_a_complete_list_is_not_continued() -> None:
    """The time was over while a pod was asked for by its name."""
    replica, server = large()
    theirs(server, "p0001", "uid-p1")["spec"]["nodeName"] = "b"
    get = server.get

    def no_answer(path: str, query: Any = None, *, deadline_s: float) -> bytes:
        if "metadata.name" in (query or {}).get("fieldSelector", ""):
            replica.now_s += Timing().bind_s
            raise Unavailable(f"GET {PATH}", "no answer from the API server", "try again later")
        return get(path, query, deadline_s=deadline_s)

    server.get = no_answer  # type: ignore[method-assign]
    assert "no answer" in replica.bind("new", "a")
    server.get = get  # type: ignore[method-assign]
    assert "the watch has not yet reported that pod ml/p0001 is bound" in replica.bind("new", "a")


def test_a_list_under_another_lease_does_not_count() -> None:
    """Others have bound since, also who was on a page that is read by now."""
    replica, server = large()
    server.paging = slow(replica, 1.5)
    assert PATH in replica.bind("new", "a")
    server.take("other", replica.now_s)
    replica.now_s += 0.1
    assert "other_c0ffee holds it" in replica.bind("new", "a")
    theirs(server, "p0001", "uid-p1")["spec"]["nodeName"] = "b"
    server.take("one", replica.now_s)
    replica.now_s += 0.1
    assert "the previous one may still be binding" in replica.bind("new", "a")
    replica.now_s += Timing().handover_s
    assert PATH in replica.bind("new", "a")
    goes_on(replica)
    assert "the watch has not yet reported that pod ml/p0001 is bound" in replica.bind("new", "a")
    assert server.asked == ["", "500", "1000", "", "500", "1000", "1000", "1500"]
    assert server.written == []


def test_a_thread_of_the_extender_reads_the_list() -> None:
    """Pages come when the test lets them; a binding waits for a moment alone."""
    server, small = Large(), Small(["a"])
    server.holder, server.taken_s = f"{socket.gethostname()}_c0ffee", time.time() - 3600
    lets, waits = threading.Event(), threading.Event()

    def paging(_: str, deadline_s: float) -> None:
        if deadline_s > 1:
            waits.set()
        if not lets.wait(deadline_s):
            raise Unavailable(f"GET {PATH}", "no answer from the API server", "try again later")

    server.paging = paging
    settings = SchedulerSettings(
        Listen("127.0.0.1", 0),
        lease=("hami-system", "hami-scheduler"),
        timing=Timing(bind_s=0.5),
        pod_selector="",
        requeue="",
        expire_s=0.01,
    )
    scheduler = Scheduler(cast(ApiServer, server), settings)
    small.server, small.cluster, small.verbs = server, scheduler.cluster, scheduler.verbs
    small.listed().create("new", 2_000)
    small.limit("ml")
    # Before the threads take from its time.
    assert PATH in small.bind("new", "a")
    scheduler.start()
    try:
        assert waits.wait(60)
        assert "0 pods are listed so far" in small.bind("new", "a")
        lets.set()
        until(lambda: small.bind("new", "a") == "", "the pod is not bound")
        assert scheduler.ended_threads() == []
    finally:
        lets.set()
        scheduler.stop()
    assert [body["metadata"]["name"] for body in server.written] == ["new"]
