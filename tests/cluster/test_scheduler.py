"""The extender under a real kube-scheduler: pods are placed on cards and bound in one write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from cluster import audit_log, failing, objects, waiting
from cluster.api import Object
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane, Settings
from cluster.extended import EXTENDER, assignment, card, extended, node
from cluster.objects import NODES, PODS
from hami_py.scheduler.service import Scheduler


@pytest.fixture
def both(control_plane: StartControlPlane) -> Iterator[tuple[ControlPlane, Scheduler]]:
    with extended(control_plane, settings=Settings(audits=True)) as both:
        yield both


def create(cluster: ControlPlane, name: str, limits: dict[str, int]) -> Object:
    return cluster.api.create(PODS, objects.pod(name, limits))


def stages(cluster: ControlPlane, since: str) -> dict[str, list[tuple[bool, str | None]]]:
    """By pod, whether it has an assignment, and its node, as the watch tells of it up to now."""
    cluster.api.create(PODS, objects.pod("last", schedulerName=failing.NOBODY))
    seen: dict[str, list[tuple[bool, str | None]]] = {}
    for event in cluster.api.watch(f"{PODS}?resourceVersion={since}", seconds=60):
        pod = event["object"]
        name = pod["metadata"]["name"]
        if name == "last":
            return seen
        annotated = "hami.io/assignment" in pod["metadata"].get("annotations", {})
        told = seen.setdefault(name, [])
        if told[-1:] != [(annotated, pod["spec"].get("nodeName"))]:
            told.append((annotated, pod["spec"].get("nodeName")))
    raise TimeoutError("the watch has not told of the last pod")


def test_pods_are_bound_to_their_cards_in_one_write_each(
    both: tuple[ControlPlane, Scheduler],
) -> None:
    """Nine pods at once, three for each of three nodes."""
    cluster, _ = both
    for name in "abc":
        made = cluster.api.create(NODES, node(name, [card(name, 0)]))
    names = [f"p{number}" for number in range(9)]
    for name in names:
        create(cluster, name, {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000})
    placed = failing.until_bound(cluster.api, len(names))
    assert sorted(Counter(placed.values()).items()) == [("a", 3), ("b", 3), ("c", 3)]
    # A watch shows it as one change, without other changes.
    seen = stages(cluster, made["metadata"]["resourceVersion"])
    assert seen == {name: [(False, None), (True, placed[name])] for name in names}
    audit_log.each_bound_in_one_write(cluster, EXTENDER, names)
    for name in names:
        (shares,) = assignment(cluster.api, name).containers.values()
        assert [(share.memory_mib, share.cores) for share in shares] == [(3000, 0)]


def test_no_card_is_overcommitted(both: tuple[ControlPlane, Scheduler]) -> None:
    """Twelve pods of 4000 MiB on two nodes of two cards of 10,000: eight fit."""
    cluster, _ = both
    for name in ("a", "b"):
        cluster.api.create(NODES, node(name, [card(name, 0), card(name, 1)]))
    for i in range(12):
        create(cluster, f"p{i}", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 4000})
    placed = failing.until_bound(cluster.api, 8)
    assert sorted(failing.given(cluster.api).values()) == [8000] * 4
    left = next(f"p{i}" for i in range(12) if f"p{i}" not in placed)
    waiting.unschedulable(cluster.api, left, "too little memory")
    # Room that is freed is used.
    cluster.api.delete(f"{PODS}/{next(iter(placed))}", grace_seconds=0)
    waiting.gone(cluster.api, f"{PODS}/{next(iter(placed))}")
    failing.until_bound(cluster.api, 8)


def test_a_pod_without_our_resources_is_bound_to_a_node_without_cards(
    both: tuple[ControlPlane, Scheduler],
) -> None:
    """Charts write 0 for pods without a GPU; kube-scheduler leaves that binding to us, too."""
    cluster, _ = both
    cluster.api.create(NODES, node("plain", []))
    create(cluster, "zero", {"nvidia.com/gpu": 0})
    create(cluster, "cores", {"nvidia.com/gpucores": 0})
    assert failing.until_bound(cluster.api, 2) == {"zero": "plain", "cores": "plain"}
    for name in ("zero", "cores"):
        annotations = cluster.api.get(f"{PODS}/{name}")["metadata"].get("annotations", {})
        assert "hami.io/assignment" not in annotations
