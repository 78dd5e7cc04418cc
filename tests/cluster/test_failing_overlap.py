"""Two replicas that are both asked to bind, all the time, while the lease goes to and fro."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from cluster import failing, waiting
from cluster.api import Api, Object
from cluster.conftest import StartControlPlane
from cluster.extended import card, extender, node
from cluster.failing import NOBODY
from cluster.objects import NODES, PODS
from cluster.repeated_events import RepeatedEvents
from cluster.servers import free_ports
from hami_py.kube import ApiServer
from hami_py.scheduler.settings import Timing

#: A node of eight cards, on each of which three pods fit.
CARDS, MIB, SHARE, ROOM = 8, 10_000, 3000, 24

PLACE = ("kube-system", "overlap")
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"

#: A binding may take a second; a new holder waits for that, and for late writes.
TIMING = Timing(bind_s=1.0)


class Asking:
    """A kube-scheduler that knows nothing of leases: it has all pods bound by its extender."""

    def __init__(self, api: Api, port: int, waits: dict[str, Object]) -> None:
        self._api, self._port, self._waits = api, port, waits
        self.said: set[str] = set()

    def was_not_told(self) -> bool:
        """Whether a pod was refused because the watch has still to tell of others."""
        return any("has not yet reported" in why for why in tuple(self.said))

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            bound = failing.bound(self._api)
            for name, made in list(self._waits.items()):
                if name not in bound:
                    self.said.add(failing.bind(self._port, made, "a"))


@pytest.mark.timeout(300)
def test_overlapping_replicas_never_assign_a_card_twice(control_plane: StartControlPlane) -> None:
    """The replicas do not wait for each other, and the new holder does not know earlier writes."""
    ports = free_ports(2)
    cluster = control_plane()
    api = cluster.api
    spec = {"holderIdentity": "nobody", "leaseDurationSeconds": 3600, "leaseTransitions": 0}
    api.create(LEASES, {"metadata": {"name": PLACE[1]}, "spec": spec})
    servers = [RepeatedEvents(ApiServer.connect(cluster.kubeconfig)) for _ in ports]
    holders = ("one", "other")
    one, other = (
        extender(server, port, lease=PLACE, lease_holder=holder, timing=TIMING)
        for server, port, holder in zip(servers, ports, holders, strict=True)
    )
    waits: dict[str, Object] = {}
    stop = threading.Event()
    asking = [Asking(api, port, waits) for port in ports]

    def create(*names: str) -> None:
        for name in names:
            waits[name] = api.create(PODS, failing.pod(name, SHARE, schedulerName=NOBODY))

    def until_given(count: int, what: str) -> None:
        """At no time has a card more than it has."""

        def look() -> bool:
            given = failing.given(api)
            assert all(mib <= MIB for mib in given.values()), given
            return sum(given.values()) >= count * SHARE

        waiting.until(look, what)

    with one as first, other as second, ThreadPoolExecutor() as pool:
        assert first.wait_until_ready(60)
        assert second.wait_until_ready(60)
        api.create(NODES, node("a", [card("a", i, memory_mib=MIB) for i in range(CARDS)]))
        running = [pool.submit(each.run, stop) for each in asking for _ in range(2)]
        try:
            count = 0
            for turn in range(5):
                server = servers[turn % 2]
                # Of what the one before binds now, this one hears late.
                server.goes.clear()
                if turn:
                    create(*(f"before{turn}-{number}" for number in range(3)))
                    until_given(count + 1, "the other one binds")
                failing.take_lease(api, f"{LEASES}/{PLACE[1]}", f"{holders[turn % 2]}_c0ffee")
                asking[turn % 2].said.clear()
                create(*(f"after{turn}-{number}" for number in range(3)))
                if turn:
                    # It has the lease, and does not know who has cards.
                    waiting.until(asking[turn % 2].was_not_told, "it may not bind yet")
                server.goes.set()
                count = min(ROOM, len(waits))
                until_given(count, "all are bound that fit")
        finally:
            stop.set()
            for server in servers:
                server.goes.set()
        for each in running:
            each.result()
        until_given(ROOM, "all cards are full")
    assert len(failing.bound(api)) == ROOM
    assert sorted(failing.given(api).values()) == [3 * SHARE] * CARDS
