"""Pods that were refused, and what kube-scheduler has no event for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from cluster import failing, objects, waiting
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane
from cluster.extended import asking, card, extender, node
from cluster.failing import NOBODY
from cluster.objects import NODES, PODS, QUOTAS
from cluster.servers import free_ports
from hami_py.scheduler.service import Scheduler


@dataclass(frozen=True)
class Wired:
    """A cluster whose extender hears of it over a cable."""

    cluster: ControlPlane
    scheduler: Scheduler
    cable: failing.Cable


@pytest.fixture(scope="module")
def wired(module_control_plane: StartControlPlane) -> Iterator[Wired]:
    (port,) = free_ports(1)
    cluster = asking(module_control_plane, port)
    with failing.Cable(cluster) as cable, extender(cable.server(), port) as scheduler:
        assert scheduler.wait_until_ready(60)
        yield Wired(cluster, scheduler, cable)


@pytest.fixture(scope="module")
def cluster(wired: Wired) -> ControlPlane:
    return wired.cluster


@pytest.fixture(autouse=True)
def clean(cluster: ControlPlane) -> Iterator[None]:
    yield
    for path in (PODS, NODES, QUOTAS):
        cluster.api.delete_all(path)
    waiting.until(lambda: not cluster.api.list(PODS), "the test's pods are deleted")


def refused(cluster: ControlPlane, name: str, reason: str, **more: object) -> None:
    cluster.api.create(PODS, failing.pod(name, 2000, **more))
    waiting.unschedulable(cluster.api, name, reason)


@pytest.mark.timeout(200)
def test_a_raised_quota_admits_pending_pods(wired: Wired) -> None:
    cluster, api = wired.cluster, wired.cluster.api
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"limits.nvidia.com/gpumem": "1000"}}}
    api.create(QUOTAS, quota)
    # A pod that is quicker than the watch of quotas is let in.
    known = wired.scheduler.cluster.quotas.limits
    waiting.until(lambda: known("default"), "the extender knows the quota")
    api.create(NODES, node("a", [card("a", 0)]))
    refused(cluster, "waits", "quota q")
    api.patch(f"{QUOTAS}/q", {"spec": {"hard": {"limits.nvidia.com/gpumem": "2000"}}})
    waiting.bound(api, "waits")


@pytest.mark.timeout(200)
def test_cards_of_completed_init_containers_are_used(wired: Wired) -> None:
    """kube-scheduler hears of it, too, and asks again; but it may be the first to hear."""
    cluster, api = wired.cluster, wired.cluster.api
    api.create(NODES, node("a", [card("a", 0), card("a", 1)]))
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 9000}
    api.create(
        PODS,
        objects.pod(
            "one",
            containers=[objects.container("serve", {**limits, "nvidia.com/gpumem": 1000})],
            initContainers=[objects.container("compile", limits)],
            restartPolicy="Never",
        ),
    )
    waiting.bound(api, "one")
    other = api.create(PODS, failing.pod("other", 9000, schedulerName=NOBODY))
    taken = next(iter(failing.given(api)))
    free = "GPU-a-1" if taken == "GPU-a-0" else "GPU-a-0"
    failing.bind_by_hand(api, other, "a", free, 9000)
    uid, placed = other["metadata"]["uid"], wired.scheduler.cluster.pods
    waiting.until(lambda: placed.is_placed(uid), "the extender knows of the other pod")
    refused(cluster, "waits", "too little memory")
    done = {"type": "Initialized", "status": "True"}
    wired.cable.cut()
    try:
        asked = failing.filters(wired.scheduler)
        api.patch(f"{PODS}/one/status", {"status": {"conditions": [done]}})
        waiting.until(lambda: failing.filters(wired.scheduler) > asked, "it has asked again")
        assert not api.get(f"{PODS}/waits")["spec"].get("nodeName")
    finally:
        wired.cable.fix()
    waiting.bound(api, "waits")
