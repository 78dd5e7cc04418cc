"""Pods that are refused: they wait no longer than they must, and say why in few words."""

from __future__ import annotations

import pytest

from cluster import failing, waiting
from cluster.conftest import StartControlPlane
from cluster.extended import card, extended, node
from cluster.failing import NOBODY
from cluster.objects import NODES, PODS


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
    """Twenty nodes of eight cards, every one of them full in another way."""
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
        said = waiting.unschedulable(api, "waits", "20 too little memory free on its cards")
        assert len(said) < 250
