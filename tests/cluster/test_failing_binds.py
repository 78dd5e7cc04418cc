"""Bind calls that are repeated, late, or for objects that no longer exist."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster import failing, objects, waiting
from cluster.api import Object
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane
from cluster.extended import assignment, card, extended, node
from cluster.failing import NOBODY
from cluster.objects import NODES, PODS

#: A whole card.
WHOLE = 10_000

Both = tuple[ControlPlane, int]


@pytest.fixture(scope="module")
def whole(module_control_plane: StartControlPlane) -> Iterator[Both]:
    with extended(module_control_plane) as (cluster, scheduler):
        yield cluster, scheduler.server.port


@pytest.fixture
def both(whole: Both) -> Iterator[Both]:
    """Nodes a and b with a card each; the extender knows them."""
    cluster, port = whole
    for name in "ab":
        cluster.api.create(NODES, node(name, [card(name, 0)]))
    probe = cluster.api.create(PODS, failing.pod("probe", WHOLE, schedulerName=NOBODY))
    waiting.until(lambda: failing.fits(port, probe, "a", "b") == ["a", "b"], "both are known")
    cluster.api.delete(f"{PODS}/probe", grace_seconds=0)
    yield whole
    for path in (PODS, NODES):
        cluster.api.delete_all(path)
    waiting.until(lambda: not cluster.api.list(PODS), "the test's pods are deleted")
    waiting.until(lambda: failing.fits(port, probe, "a", "b") == [], "the nodes are forgotten")


def create(both: Both, name: str) -> Object:
    return both[0].api.create(PODS, failing.pod(name, WHOLE, schedulerName=NOBODY))


def is_free(both: Both, node: str) -> None:
    """A pod that wants the whole card gets it."""
    made = create(both, f"next-{node}")
    waiting.until(lambda: failing.fits(both[1], made, node) == [node], f"node {node} is free")
    assert failing.bind(both[1], made, node) == ""


def test_a_pod_that_another_scheduler_has_bound_gets_no_card(both: Both) -> None:
    cluster, port = both
    made = create(both, "p")
    cluster.api.create(f"{PODS}/p/binding", objects.binding(made, "b"))
    assert "409" in failing.bind(port, made, "a")
    assert "hami.io/assignment" not in cluster.api.get(f"{PODS}/p")["metadata"].get(
        "annotations", {}
    )
    is_free(both, "a")


def test_cards_of_a_pod_that_another_replica_has_bound_count(both: Both) -> None:
    cluster, port = both
    made = create(both, "p")
    failing.bind_by_hand(cluster.api, made, "b", "GPU-b-0", WHOLE)
    assert failing.bind(port, made, "a") != ""
    is_free(both, "a")
    assert failing.given(cluster.api) == {"GPU-a-0": WHOLE, "GPU-b-0": WHOLE}
    late = create(both, "late")
    assert failing.fits(port, late, "a", "b") == []
    assert failing.bind(port, late, "b") != ""


def test_a_later_pod_of_the_same_name_is_not_bound_in_its_place(both: Both) -> None:
    cluster, port = both
    old = create(both, "p")
    cluster.api.delete(f"{PODS}/p", grace_seconds=0)
    waiting.gone(cluster.api, f"{PODS}/p")
    new = create(both, "p")
    assert failing.bind(port, old, "a") != ""
    assert failing.bound(cluster.api) == {}
    assert failing.bind(port, new, "a") == ""
    assert assignment(cluster.api, "p").pod == new["metadata"]["uid"]
    is_free(both, "b")


def test_a_deleted_or_terminating_pod_is_not_bound(both: Both) -> None:
    cluster, port = both
    gone = create(both, "gone")
    going = cluster.api.create(
        PODS,
        failing.pod("going", WHOLE, schedulerName=NOBODY, metadata={"finalizers": ["x.io/keep"]}),
    )
    for name in ("gone", "going"):
        cluster.api.delete(f"{PODS}/{name}", grace_seconds=0)
    try:
        assert failing.bind(port, gone, "a") != ""
        assert failing.bind(port, going, "b") != ""
        assert failing.bound(cluster.api) == {}
        is_free(both, "a")
        is_free(both, "b")
    finally:
        cluster.api.patch(f"{PODS}/going", {"metadata": {"finalizers": None}})


def test_a_repeated_or_late_bind_writes_nothing(both: Both) -> None:
    cluster, port = both
    made = create(both, "p")
    assert failing.bind(port, made, "a") == ""
    first = cluster.api.get(f"{PODS}/p")
    assert failing.bind(port, made, "a") == ""
    assert failing.bind(port, made, "b") != ""
    assert cluster.api.get(f"{PODS}/p")["metadata"] == first["metadata"]
    is_free(both, "b")
    cluster.api.delete(f"{PODS}/p", grace_seconds=0)
    waiting.gone(cluster.api, f"{PODS}/p")
    assert failing.bind(port, made, "a") != ""
    is_free(both, "a")


def test_a_pod_bound_to_two_nodes_at_once_gets_one(both: Both) -> None:
    cluster, port = both
    made = create(both, "p")
    said = failing.at_once(lambda number: failing.bind(port, made, "ab"[number % 2]), 16)
    assert "" in said
    where = failing.bound(cluster.api)["p"]
    assert failing.given(cluster.api) == {f"GPU-{where}-0": WHOLE}
    (other,) = {"a", "b"} - {where}
    is_free(both, other)
    assert failing.given(cluster.api) == {"GPU-a-0": WHOLE, "GPU-b-0": WHOLE}


def test_a_deleted_node_gets_no_pod(both: Both) -> None:
    """The API server would take the binding."""
    cluster, port = both
    made = create(both, "p")
    assert failing.fits(port, made, "a") == ["a"]
    cluster.api.delete(f"{NODES}/a")
    waiting.until(lambda: failing.fits(port, made, "a") == [], "node a is forgotten")
    assert "node a" in failing.bind(port, made, "a")
    assert failing.bound(cluster.api) == {}


def test_annotations_that_are_too_large_are_not_written(both: Both) -> None:
    cluster, port = both
    metadata = {"annotations": {"note": "x" * (256 * 1024 - 100)}}
    made = cluster.api.create(
        PODS, failing.pod("p", WHOLE, schedulerName=NOBODY, metadata=metadata)
    )
    said = failing.bind(port, made, "a")
    assert "metadata.annotations" in said
    assert "shorten the pod's own annotations to" in said
    assert failing.bound(cluster.api) == {}
    # It can still be written to.
    cluster.api.patch(f"{PODS}/p", {"metadata": {"labels": {"still": "writable"}}})
    is_free(both, "a")
