"""Repeated and late events of real pods; only the watch reports deletions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from cluster import failing, waiting
from cluster.api import Api
from cluster.conftest import StartControlPlane
from cluster.extended import asking, card, extender, node
from cluster.objects import NODES, PODS
from cluster.repeated_events import RepeatedEvents
from cluster.servers import free_ports
from hami_py.kube import ApiServer

#: Two nodes of two cards, on each of which three pods fit.
NAMES, CARDS, MIB, SHARE, ROOM = "ab", 2, 10_000, 3000, 12


def full(api: Api) -> None:
    """Waits until no pod more fits; at no time has a card more than it has."""

    def look() -> bool:
        given = failing.given(api)
        assert all(mib <= MIB for mib in given.values()), given
        return sum(given.values()) == ROOM * SHARE

    waiting.until(look, "all cards are full")


@contextlib.contextmanager
def late(server: RepeatedEvents) -> Iterator[None]:
    """No event of a pod comes meanwhile, and some would have."""
    # Otherwise the reader may sleep past the moment at which it could have continued.
    waiting.until(lambda: server.let_go == server.held, "what was late before has been told")
    before = server.held
    server.goes.clear()
    try:
        yield
        waiting.until(lambda: server.held > before, "an event is late")
    finally:
        server.goes.set()


@pytest.mark.timeout(300)
def test_repeated_and_late_events_of_pods(control_plane: StartControlPlane) -> None:
    (port,) = free_ports(1)
    cluster = asking(control_plane, port)
    api = cluster.api
    server = RepeatedEvents(ApiServer.connect(cluster.kubeconfig))
    with extender(server, port) as scheduler:
        assert scheduler.wait_until_ready(60)
        for name in NAMES:
            api.create(NODES, node(name, [card(name, i, memory_mib=MIB) for i in range(CARDS)]))
        # No bound pod is reported before all are bound.
        with late(server):
            for number in range(ROOM + 2):
                api.create(PODS, failing.pod(f"p{number}", SHARE))
            full(api)
            (waits, *_) = [f"p{i}" for i in range(ROOM + 2) if f"p{i}" not in failing.bound(api)]
            waiting.unschedulable(api, waits)
            full(api)
        for turn in range(4):
            with late(server):
                # Deleted pods still count, so new pods are rejected.
                for name in sorted(failing.bound(api))[turn : turn + 4]:
                    api.delete(f"{PODS}/{name}", grace_seconds=0)
                for number in range(4):
                    api.create(PODS, failing.pod(f"turn{turn}-{number}", SHARE))
                waiting.unschedulable(api, f"turn{turn}-3")
            full(api)
        assert min(server.repeated[kind] for kind in ("ADDED", "MODIFIED", "DELETED")) > 0
    assert sorted(failing.given(api).values()) == [3 * SHARE] * len(NAMES) * CARDS
