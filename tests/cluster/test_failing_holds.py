"""Pods that are refused: they wait no longer than they must, and say why in few words."""

from __future__ import annotations

import time

import pytest

from cluster import failing, objects, waiting
from cluster.conftest import StartControlPlane
from cluster.extended import asking, card, extended, extender, node
from cluster.failing import NOBODY
from cluster.objects import NODES, PODS
from cluster.servers import free_ports
from hami_py.kube import ApiServer

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.mark.timeout(200)
def test_a_pod_rejected_because_of_a_hold_is_retried_when_it_expires(
    control_plane: StartControlPlane,
) -> None:
    """Nothing happens in the cluster when it lapses, and without an event it would wait minutes."""
    with extended(control_plane) as (cluster, scheduler):
        api, port = cluster.api, scheduler.server.port
        api.create(NODES, node("a", [card("a", 0)]))
        other = api.create(PODS, failing.pod("other", 10_000, schedulerName=NOBODY))
        waiting.until(lambda: failing.fits(port, other, "a") == ["a"], "the node is known")
        # As kube-scheduler does before a plugin of its own turns the pod away.
        failing.ask(port, "prioritize", {"Pod": other, "NodeNames": ["a"]})
        api.create(PODS, failing.pod("waits", 10_000))
        waiting.unschedulable(api, "waits", "held for other pods for some seconds")
        assert "SchedulerError" in {
            condition.get("reason")
            for condition in api.get(f"{PODS}/waits")["status"]["conditions"]
        }
        waiting.bound(api, "waits")
        assert failing.given(api) == {"GPU-a-0": 10_000}


@pytest.mark.timeout(200)
def test_the_condition_of_a_pod_that_fits_nowhere_is_short(
    control_plane: StartControlPlane,
) -> None:
    """Twenty nodes of eight cards, every one of them too small in another way."""
    with extended(control_plane) as (cluster, _):
        api = cluster.api
        for number in range(20):
            cards = [
                card(f"n{number}", index, memory_mib=1000 + 10 * number + index)
                for index in range(8)
            ]
            cards[0] = card(f"n{number}", 0, model="Tesla T4")
            api.create(NODES, node(f"n{number}", cards))
        metadata = {"annotations": {"nvidia.com/use-gputype": "A100"}}
        api.create(PODS, failing.pod("waits", 2000, metadata=metadata))
        reason = "20 never fits: its cards have less memory than requested"
        said = waiting.unschedulable(api, "waits", reason)
        assert len(said) < 250


@pytest.mark.timeout(200)
def test_room_freed_by_preemption_is_the_preemptors(control_plane: StartControlPlane) -> None:
    """16 pods of low priority fill 16 cards, 20 more wait, and one of high priority comes.

    kube-scheduler's own sums leave room for a waiting pod beside the preemptor. It took the card of
    the evicted pod, and another pod was evicted for the preemptor.
    """
    (port,) = free_ports(1)
    cluster = asking(control_plane, port, podMaxBackoffSeconds=1)
    with extender(ApiServer.connect(cluster.kubeconfig), port) as scheduler:
        assert scheduler.wait_until_ready(60)
        api = cluster.api
        for name, value in (("low", 1), ("high", 1000)):
            api.create(CLASSES, {"metadata": {"name": name}, "value": value})
            waiting.takes(api, objects.pod(priorityClassName=name))
        for name in ("a", "b"):
            api.create(NODES, node(name, [card(name, index) for index in range(8)]))
        running = {f"runs-{number}" for number in range(16)}
        for name in running:
            api.create(PODS, failing.pod(name, 9000, priorityClassName="low"))
        failing.until_bound(api, len(running))
        waits = {f"waits-{number}" for number in range(20)}
        for name in waits:
            api.create(PODS, failing.pod(name, 5000, priorityClassName="low"))
        for name in waits:
            waiting.unschedulable(api, name)
        # Their back-off is over before that of the preemptor.
        time.sleep(2)
        api.create(PODS, failing.pod("high", 9000, priorityClassName="high"))
        waiting.bound(api, "high")
        there = {pod["metadata"]["name"] for pod in api.list(PODS)}
        assert len(running - there) == 1
        assert waits <= there
        assert set(failing.bound(api)) == {*(running & there), "high"}
