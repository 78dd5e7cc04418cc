"""A cluster at one moment: where a pod fits, and what keeps it away beside cards."""

from typing import Any

import msgspec
import pytest

from hami_py._native import Allocator
from hami_py.cluster.view import ClusterView, DaemonPod, Listed
from hami_py.model import pods
from hami_py.model.pods import objects, wire
from unit.pods import build

CARD = wire.Card("GPU-a", 0, "NVIDIA A100-SXM4-80GB", 10_000)
OTHER = wire.Card("GPU-b", 0, "NVIDIA A100-SXM4-80GB", 10_000)


def node(name: str, card: wire.Card, **spec: Any) -> objects.Node:
    written = {pods.annotations.CARDS: pods.encode_cards((card,))}
    metadata = {"name": name, "labels": {"host": name}, "annotations": written}
    return pods.decode_node.convert({"metadata": metadata, "spec": spec})


def view(*nodes: objects.Node) -> ClusterView:
    allocator = Allocator()
    for each in nodes:
        seen = pods.read_node(each)
        assert seen is not None
        allocator.set_node(wire.encode(seen))
    return ClusterView(allocator, nodes=nodes)


def listed(node: objects.Node, settings: pods.PodSettings | None = None) -> ClusterView:
    """The cluster as it is read from an API server."""
    return ClusterView.of(Listed([node]), Listed([]), Listed([]), settings)


def pod(mib: int = 6000, **fields: Any) -> objects.Pod:
    return build.pod(build.container(limits={"gpumem": mib}), **fields)


def test_a_node_that_is_cordoned_does_not_fit_and_is_not_chosen() -> None:
    seen = view(node("a", CARD, unschedulable=True), node("b", OTHER))
    fits, cordoned = seen.explain(pod())
    assert (fits.node, fits.fits, fits.reason) == ("b", True, None)
    assert (cordoned.node, cordoned.fits) == ("a", False)
    assert cordoned.reason == "the node is cordoned"
    assert cordoned.unresolvable
    assert (cordoned.assignment, cordoned.score) == (None, None)
    # The card itself has room, and that is told.
    assert cordoned.cards[0].containers[0].fits
    first, second = seen.what_if([pod(), pod()])
    assert first.node == "b"
    assert first.reasons == {"a": "the node is cordoned"}
    assert second.node is None
    assert second.reasons["a"] == "the node is cordoned"
    assert "b" in second.reasons


def test_reasons_for_cards_and_others_are_shown_together() -> None:
    seen = view(node("a", CARD, taints=[{"key": "k", "effect": "NoExecute"}]))
    (there,) = seen.explain(pod(20_000, nodeSelector={"host": "b"}))
    (outcome,) = seen.what_if([pod(20_000, nodeSelector={"host": "b"})])
    for reason in (there.reason, outcome.reasons["a"]):
        assert reason is not None
        assert reason.startswith(
            "taint k:NoExecute is not tolerated; nodeSelector requires host=b, and it is a; "
        )
        assert len(reason.split("; ")) == 3


def test_explain_ignores_the_node_of_a_pod_that_we_bound() -> None:
    seen = view(node("a", CARD), node("b", OTHER))
    bound = pod(nodeName="a", annotations={pods.annotations.ASSIGNMENT: "{}"})
    assert [each.fits for each in seen.explain(bound)] == [True, True]
    # Another program has set the node: kube-scheduler is never called.
    elsewhere = pod(nodeName="a")
    assert [(each.node, each.fits) for each in seen.explain(elsewhere)] == [
        ("a", True),
        ("b", False),
    ]


def test_a_daemon_pod_is_placed_on_each_node() -> None:
    tainted = node(
        "c", wire.Card("GPU-c", 0, "T4", 10_000), taints=[{"key": "k", "effect": "NoExecute"}]
    )
    seen = view(node("a", CARD), node("b", OTHER), tainted)
    first, *each = seen.what_if([pod(), DaemonPod(pod())])
    taken, free = sorted(("a", "b"), key=lambda name: name != first.node)
    assert {outcome.node for outcome in each} == {free, None}
    (nowhere,) = [outcome for outcome in each if outcome.node is None]
    assert nowhere.reasons.keys() == {taken}
    # It runs nowhere: all nodes have a reason.
    (outcome,) = seen.what_if([DaemonPod(pod(nodeSelector={"host": "x"}))])
    assert outcome.reasons.keys() == {"a", "b", "c"}
    offline = ClusterView.restore(seen.snapshot())
    assert [each.node for each in offline.what_if([DaemonPod(pod())])] == ["a", "b", "c"]


def test_a_snapshot_has_cards_alone() -> None:
    seen = view(node("a", CARD, unschedulable=True))
    offline = ClusterView.restore(seen.snapshot())
    assert offline.digest() == seen.digest()
    assert [each.fits for each in offline.explain(pod())] == [True]
    assert offline.what_if([pod()])[0].node == "a"


@pytest.mark.parametrize("offline", [False, True])
def test_a_card_on_two_nodes_is_reported_and_counted_on_both(*, offline: bool) -> None:
    seen = view(node("a", CARD), node("b", CARD), node("c", OTHER))
    if offline:
        seen = ClusterView.restore(seen.snapshot())
    told = {each.node: each.cards[0].also_on for each in seen.explain(pod())}
    assert told == {"a": ("b",), "b": ("a",), "c": ()}
    assert {each.node for each in seen.what_if([pod()] * 3)} == {"a", "b", "c"}


def test_a_card_below_the_level_of_a_pod_is_explained_also_for_agents_that_publish_none() -> None:
    (seen,) = listed(node("a", CARD)).explain(pod(annotations={"hami.io/isolation": "kernel"}))
    assert not seen.fits
    assert seen.unresolvable
    assert seen.reason == "1 card: 1 has too weak isolation (kernel requested, offered preload)"
    (container,) = seen.cards[0].containers
    assert (container.code, container.reason) == (
        "isolation",
        "has too weak isolation (kernel requested, offered preload)",
    )
    raised = listed(node("a", CARD), pods.PodSettings(isolations={"ml": "mig"}))
    assert not raised.explain(pod())[0].fits
    assert raised.explain(pod(metadata={"namespace": "other"}))[0].fits


def test_what_enforces_limits_on_a_node_is_known_by_its_mode() -> None:
    seen = listed(node("a", CARD))
    assert str(seen.enforcement("a")) == (
        "memory is enforced by preload and time by lease, because the node offers nothing stronger"
    )
    assert str(seen.enforcement("a", [True])) == (
        "memory is enforced by mig and time by mig, because its cards are MIG instances"
    )
    assert seen.enforcement("b") is None


def test_cards_whose_memory_the_driver_limits_take_pods_that_need_it() -> None:
    seen = listed(node("a", msgspec.structs.replace(CARD, level="kernel")))
    assert seen.explain(pod(annotations={"hami.io/isolation": "kernel"}))[0].fits
    assert str(seen.enforcement("a")) == (
        "memory is enforced by kernel and time by lease, because the node offers nothing stronger"
    )
