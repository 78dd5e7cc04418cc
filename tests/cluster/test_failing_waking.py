"""Pods that were refused, and what kube-scheduler has no event for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cluster import failing, objects, waiting
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane
from cluster.extended import card, extended, node
from cluster.failing import NOBODY, NODES, PODS

WAKE = Path(__file__).parents[2] / "deploy/scheduler/wake.yaml"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"


@pytest.fixture(scope="module")
def cluster(module_control_plane: StartControlPlane) -> Iterator[ControlPlane]:
    with extended(module_control_plane) as (cluster, _):
        wake = yaml.safe_load(WAKE.read_text())
        cluster.api.create("/apis/storage.k8s.io/v1/storageclasses", wake)
        yield cluster


@pytest.fixture(autouse=True)
def clean(cluster: ControlPlane) -> Iterator[None]:
    yield
    for path in (PODS, NODES, QUOTAS):
        cluster.api.delete_all(path)
    waiting.until(lambda: not cluster.api.list(PODS), "the test's pods are gone")


def refused(cluster: ControlPlane, name: str, reason: str, **more: object) -> None:
    cluster.api.create(PODS, failing.pod(name, 2000, **more))
    waiting.until(
        lambda: reason in waiting.unschedulable(cluster.api, name), f"{name} is refused: {reason}"
    )


@pytest.mark.timeout(200)
def test_a_quota_that_is_raised_lets_them_in(cluster: ControlPlane) -> None:
    api = cluster.api
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"limits.nvidia.com/gpumem": "1000"}}}
    api.create(QUOTAS, quota)
    api.create(NODES, node("a", [card("a", 0)]))
    refused(cluster, "waits", "quota q")
    api.patch(f"{QUOTAS}/q", {"spec": {"hard": {"limits.nvidia.com/gpumem": "2000"}}})
    waiting.bound(api, "waits")


@pytest.mark.timeout(200)
def test_room_of_init_containers_that_are_done_is_used(cluster: ControlPlane) -> None:
    api = cluster.api
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
    refused(cluster, "waits", "too little memory")
    done = {"type": "Initialized", "status": "True"}
    api.patch(f"{PODS}/one/status", {"status": {"conditions": [done]}})
    waiting.bound(api, "waits")
