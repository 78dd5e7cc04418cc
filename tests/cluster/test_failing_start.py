"""The extender restarts beside a kube-scheduler that does not wait for it."""

from __future__ import annotations

import json

import pytest
import urllib3

from cluster import failing, waiting
from cluster.api import Object
from cluster.conftest import StartControlPlane
from cluster.extended import asking, card, extender, node
from cluster.objects import NODES, PODS
from cluster.servers import free_ports
from hami_py.cluster.state import PODS as ALL_PODS
from hami_py.kube import ApiServer
from hami_py.scheduler.service import Scheduler

#: 80 cards of 80,000 MiB, on each of which 13 pods fit.
CARDS, MIB, SHARE = 80, 80_000, 6000


def told(scheduler: Scheduler) -> dict[str, int]:
    """MiB by card, as the extender counts them."""
    usage = json.loads(scheduler.cluster.allocator.usage())
    cards = (card for node in usage for card in node["cards"])
    return {
        card["uuid"]: card["memory_allocated_mib"] for card in cards if card["memory_allocated_mib"]
    }


@pytest.mark.timeout(400)
def test_a_thousand_pods_are_counted_after_a_restart(control_plane: StartControlPlane) -> None:
    """Creates a thousand pods: the first list of a new extender has several pages."""
    (port,) = free_ports(1)
    cluster = asking(control_plane, port)
    api = cluster.api
    for name in "abcdefghij":
        cards = [card(name, index, memory_mib=MIB) for index in range(8)]
        api.create(NODES, node(name, cards))

    def place(number: int) -> None:
        at = number % CARDS
        name = "abcdefghij"[at // 8]
        made = api.create(PODS, failing.pod(f"old{number}", SHARE, schedulerName=failing.NOBODY))
        failing.bind_by_hand(api, made, name, f"GPU-{name}-{at % 8}", SHARE)

    failing.at_once(place, 1000)
    old = failing.bound(api)
    assert len(old) == 1000
    server = ApiServer.connect(cluster.kubeconfig)
    with extender(server, port) as first:
        assert first.wait_until_ready(60)
        digest, counted = first.cluster.allocator.digest(), told(first)
    assert counted == failing.given(api)
    with extender(server, port) as second:
        assert second.wait_until_ready(60)
        assert second.cluster.allocator.digest() == digest

    # Pods come while it starts; 40 places are left.
    held = failing.HeldLists(server, ALL_PODS)
    with extender(held, port) as third:
        made: list[Object] = failing.at_once(
            lambda number: api.create(PODS, failing.pod(f"new{number}", SHARE)), 60
        )
        waiting.until(lambda: failing.filters(third) >= 3, "kube-scheduler has asked")
        answer = failing.ask(port, "filter", {"Pod": made[0], "NodeNames": ["a", "b"]})
        assert "the cluster is not known yet" in answer["Error"]
        assert "the cluster is not known yet" in failing.bind(port, made[0], "a")
        ready = urllib3.request("GET", f"http://127.0.0.1:{port}/readyz", timeout=30.0)
        assert ready.status == 503
        assert failing.bound(api) == old
        held.open.set()
        failing.until_bound(api, 1040)
        message = waiting.until(lambda: unplaced(api.list(PODS)), "twenty are said to wait")
        assert set(message) == {"too little memory free on its cards"}
        sums = failing.given(api)
        assert sorted(sums.values()) == [13 * SHARE] * CARDS
        assert told(third) == sums


def unplaced(pods: list[Object]) -> list[str] | None:
    """The conditions of the pending pods, when all twenty have been rejected finally."""
    said = [
        condition["message"]
        for pod in pods
        for condition in pod["status"].get("conditions", [])
        if condition["type"] == "PodScheduled" and condition["status"] == "False"
    ]
    reason = "too little memory free on its cards"
    wanted = [reason for message in said if f"10 {reason}" in message]
    return wanted if len(wanted) == 20 else None
