"""The extender under a real kube-scheduler: pods are placed on cards and bound in one write."""

from collections.abc import Iterator

import pytest

from cluster import failing, objects, waiting
from cluster.api import Object
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane
from cluster.extended import assignment, card, extended, node
from cluster.objects import NODES, PODS
from hami_py.scheduler.service import Scheduler


@pytest.fixture
def both(control_plane: StartControlPlane) -> Iterator[tuple[ControlPlane, Scheduler]]:
    with extended(control_plane) as both:
        yield both


def create(cluster: ControlPlane, name: str, limits: dict[str, int]) -> Object:
    return cluster.api.create(PODS, objects.pod(name, limits))


def test_a_pod_is_bound_to_its_cards_in_one_write(
    both: tuple[ControlPlane, Scheduler],
) -> None:
    cluster, _ = both
    cluster.api.create(NODES, node("a", [card("a", 0), card("a", 1)]))
    made = create(cluster, "one", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000})
    version = made["metadata"]["resourceVersion"]
    waiting.bound(cluster.api, "one")
    seen = []
    for event in cluster.api.watch(f"{PODS}?resourceVersion={version}", seconds=3):
        pod = event["object"]
        annotated = "hami.io/assignment" in pod["metadata"].get("annotations", {})
        seen.append((annotated, pod["spec"].get("nodeName")))
    assert (True, None) not in seen
    assert (False, "a") not in seen
    shares = assignment(cluster.api, "one").containers
    assert [(share.memory_mib, share.cores) for share in next(iter(shares.values()))] == [(3000, 0)]


def test_no_card_is_given_twice_beyond_what_it_has(
    both: tuple[ControlPlane, Scheduler],
) -> None:
    """Twelve pods of 4000 MiB on two nodes of two cards of 10,000: eight fit."""
    cluster, _ = both
    for name in ("a", "b"):
        cluster.api.create(NODES, node(name, [card(name, 0), card(name, 1)]))
    for i in range(12):
        create(cluster, f"p{i}", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 4000})
    placed = failing.until_bound(cluster.api, 8)
    assert sorted(failing.given(cluster.api).values()) == [8000] * 4
    left = next(f"p{i}" for i in range(12) if f"p{i}" not in placed)
    assert "too little memory" in waiting.unschedulable(cluster.api, left)
    # Room that is freed is used.
    cluster.api.delete(f"{PODS}/{next(iter(placed))}", grace_seconds=0)
    waiting.gone(cluster.api, f"{PODS}/{next(iter(placed))}")
    failing.until_bound(cluster.api, 8)
