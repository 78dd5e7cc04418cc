"""A card is assigned once, for every response of the API server at every point of a binding."""

from __future__ import annotations

from typing import Any

import pytest

from hami_py.kube.errors import Unavailable
from hami_py.kube.server import Status, failure
from unit.scheduler.leases import Leases, Replica, given
from unit.scheduler.small import Object

STATUSES = [0, 400, 401, 403, 404, 409, 410, 422, 429, 500, 503, 504]
READS = ["lease", "node", "namespace", "pod"]


def fails(status: int) -> None:
    if status == 0:
        raise Unavailable("the request", "no answer from the API server", "try again later")
    raise failure("the request", status, Status("a fault"))


class Failing(Leases):
    """The reads at one point fail; none if ``point`` is empty."""

    def __init__(self) -> None:
        super().__init__()
        self.point, self.status = "", 0
        self.met: list[str] = []

    def get(self, path: str, query: Any = None, *, deadline_s: float) -> bytes:
        if "/leases/" in path:
            point = "lease"
        elif path == "/api/v1/pods":
            point = "node"
        else:
            point = "namespace" if path.endswith("/pods") else "pod"
        if point == self.point:
            self.met.append(point)
            fails(self.status)
        return super().get(path, query, deadline_s=deadline_s)


def begun(point: str = "", status: int = 0, *, told: bool = True) -> tuple[Replica, Failing]:
    """A replica that leads, and two pods of which each takes the whole card."""
    server = Failing()
    server.point, server.status = point, status
    replica = Replica(server)
    replica.now_s = 100.0
    replica.limit("ml")
    for name in ("p", "next"):
        replica.create(name)
        if told:
            replica.told(name)
    return replica, server


def ends_well(replica: Replica, server: Failing) -> None:
    """The faults are over. One of the pods gets the card, and the other none."""
    server.point = ""
    server.before = server.after = lambda _: None
    for _ in range(3):
        replica.now_s += 31.0
        replica.verbs.binder.check_unreported()
        for name in ("p", "next"):
            if replica.fits(name, "a"):
                replica.bind(name, "a")
            assert given(server) <= 10_000
            if server.pods[name]["spec"].get("nodeName"):
                replica.told(name)
    assert given(server) == 10_000


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("point", READS)
def test_a_failed_read_binds_nothing_and_reserves_no_card(point: str, status: int) -> None:
    replica, server = begun(point, status, told=point != "pod")
    said = replica.bind("p", "a")
    assert server.met == [point]
    if (point, status) != ("lease", 404):
        assert said != ""
        assert server.written == []
        assert replica.fits("next", "a") == ["a"]
    ends_well(replica, server)


@pytest.mark.parametrize("look", [None, *STATUSES])
@pytest.mark.parametrize("status", STATUSES)
def test_a_failed_write_assigns_the_card_once(status: int, look: int | None) -> None:
    """And after a 409 the look at what is there may fail as well."""
    replica, server = begun() if look is None else begun("pod", look)
    server.before = lambda _: fails(status)
    assert replica.bind("p", "a") != ""
    assert server.written == []
    ends_well(replica, server)


@pytest.mark.parametrize("look", [None, *STATUSES])
@pytest.mark.parametrize("status", [0, 409, 429, 500, 503, 504])
def test_a_write_without_its_answer_keeps_its_card(status: int, look: int | None) -> None:
    replica, server = begun() if look is None else begun("pod", look)
    server.after = lambda _: fails(status)
    replica.bind("p", "a")
    server.before = server.after = lambda _: None
    # 404 after 409: the API server says that the pod does not exist.
    if (status, look) != (409, 404):
        assert replica.fits("next", "a") == []
        assert replica.bind("next", "a") != ""
        assert given(server) == 10_000
        ends_well(replica, server)


@pytest.mark.parametrize("answers", [True, False])
def test_the_lease_may_be_lost_between_the_reservation_and_the_write(answers: bool) -> None:
    """The write is sent within its time, for which the next holder waits."""
    server = Failing()
    one, other = Replica(server), Replica(server, "other")
    one.now_s = other.now_s = 100.0
    for name in ("p", "next"):
        one.create(name)
    said: list[str] = []

    def lost(body: Object) -> None:
        server.before = lambda _: None
        server.take("other", 100.0)
        for at_s in (100.0, 102.0, 103.9):
            other.now_s = at_s
            said.append(other.bind("next", "a"))
        one.now_s = 103.9

    def unanswered(_: Object) -> None:
        server.after = lambda _: None
        if not answers:
            fails(0)

    server.before, server.after = lost, unanswered
    assert (one.bind("p", "a") == "") is answers
    assert all("the previous one may still be binding" in each for each in said)
    other.now_s = 105.0
    assert "the watch has not yet reported that pod ml/p is bound" in other.bind("next", "a")
    other.told("p")
    assert other.fits("next", "a") == []
    assert given(server) == 10_000
