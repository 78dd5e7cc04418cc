"""Unreadable objects in events: no value is guessed, and no other object is affected."""

import json

import pytest

from hami_py.model import pods
from hami_py.model.pods import objects
from hami_py.scheduler.extender_api import MetaPod, MetaVictims, PreemptArgs
from unit.scheduler.small import Small, node

UNREADABLE = '{"version":2}'


def cards(name: str, annotation: str) -> objects.Node:
    metadata = objects.Metadata(name=name, annotations={pods.annotations.CARDS: annotation})
    return objects.Node(metadata)


def placed(small: Small, name: str, node: str, mib: int = 10_000, priority: int = 0) -> None:
    """Bound by us, and told."""
    small.create(name, mib)
    small.server.pods[name]["spec"]["priority"] = priority
    small.told(name)
    assert small.bind(name, node) == ""
    small.told(name)


def test_a_node_that_the_allocator_refuses_hides_no_other() -> None:
    """A card that fell off the bus has no memory, and is written so."""
    small = Small()
    first = pods.wire.Card("GPU-0", 0, "NVIDIA A100-SXM4-80GB", 0)
    broken = cards("0", pods.encode_cards((first,)))
    small._listed.insert(0, broken)
    small.listed()
    small.create("p")
    assert small.fits("p", "0", "a", "b") == ["a", "b"]
    # And one that becomes so loses what it had.
    small.cluster.nodes.changed(cards("a", pods.encode_cards((first,))))
    assert small.fits("p", "a", "b") == ["b"]


def test_a_node_missing_from_a_list_is_removed() -> None:
    small = Small().listed()
    small.create("p")
    small.cluster.nodes.replace(small._listed[1:])
    assert small.fits("p") == ["b"]
    assert "node a" in small.bind("p", "a")


def test_a_readable_assignment_unblocks_the_node() -> None:
    small = Small(nodes="a").listed()
    placed(small, "p", "a", 4000)
    annotations = small.server.pods["p"]["metadata"]["annotations"]
    good = annotations["hami.io/assignment"]
    annotations["hami.io/assignment"] = UNREADABLE
    small.told("p")
    small.create("next", 4000)
    assert small.fits("next", "a") == []
    annotations["hami.io/assignment"] = good
    small.told("p")
    assert small.fits("next", "a") == ["a"]
    small.create("large", 7000)
    small.now_s = 10
    assert small.fits("large", "a") == []


def test_a_pod_without_cards_never_blocks_a_node() -> None:
    """Otherwise a user who can create pods could block nodes."""
    small = Small(nodes="a").listed()
    small.create("p")
    del small.server.pods["p"]["spec"]["containers"][0]["resources"]
    small.server.pods["p"]["spec"]["nodeName"] = "a"
    small.server.pods["p"]["metadata"]["annotations"] = {"hami.io/assignment": UNREADABLE}
    small.told("p")
    small.create("next")
    assert small.fits("next", "a") == ["a"]


def test_an_unreadable_quota_allows_nothing_before_and_after_a_restart() -> None:
    for hard in ({"limits.nvidia.com/gpumem": "20000"}, None):
        small = Small(nodes="a").listed()
        metadata = objects.Metadata(name="q", namespace="ml")
        if hard is not None:
            small.cluster.quotas.changed(objects.ResourceQuota(metadata, objects.QuotaSpec(hard)))
        small.create("p")
        unreadable = objects.QuotaSpec({"limits.nvidia.com/gpumem": "4Gi"})
        small.cluster.quotas.changed(objects.ResourceQuota(metadata, unreadable))
        assert small.fits("p", "a") == []
        small.cluster.quotas.deleted(objects.ResourceQuota(metadata, unreadable))
        assert small.fits("p", "a") == ["a"]


def test_a_retried_bind_gets_no_failed_card() -> None:
    def away(*_: object) -> None:
        raise OSError

    small = Small(nodes="a", cards=2).listed()
    small.create("p")
    small.server.before = away
    with pytest.raises(OSError):
        small.bind("p", "a")
    (good, bad) = (
        pods.wire.Card(f"GPU-a-{i}", i, "NVIDIA A100-SXM4-80GB", 10_000, healthy=i == 1)
        for i in (1, 0)
    )
    small.cluster.nodes.changed(cards("a", pods.encode_cards((bad, good))))
    small.server.before = lambda _: None
    assert small.fits("p", "a") == ["a"]
    # As long as the first attempt may have given it that one, it gets no other.
    assert "no longer fit" in small.bind("p", "a")
    small.now_s = 31.0
    small.verbs.binder.check_unreported()
    assert small.bind("p", "a") == ""
    assert "GPU-a-1" in small.server.written[0]["metadata"]["annotations"]["hami.io/assignment"]


def preempted(small: Small, chosen: list[str]) -> list[str]:
    small.create("urgent")
    small.server.pods["urgent"]["spec"]["priority"] = 1000
    victims = {"a": MetaVictims([MetaPod(f"uid-{name}") for name in chosen])}
    answer = small.verbs.preempt(PreemptArgs(small.seen("urgent"), meta_victims=victims))
    found = answer.meta_victims.get("a", MetaVictims())
    return [pod.uid.removeprefix("uid-") for pod in found.pods or []]


def test_a_preemption_evicts_no_more_pods_than_needed() -> None:
    small = Small(nodes="a", cards=2).listed()
    placed(small, "one", "a", priority=1)
    placed(small, "two", "a", priority=2)
    assert preempted(small, ["two"]) == ["two"]


def test_a_preemption_adds_only_missing_victims() -> None:
    small = Small(nodes="a").listed()
    for name in ("one", "two"):
        placed(small, name, "a", 5000, priority=1)
    assert sorted(preempted(small, ["two"])) == ["one", "two"]


def test_a_preemption_keeps_the_victims_of_kube_scheduler() -> None:
    """It has reasons of its own: a pod without a card may have to go for its memory."""
    small = Small(nodes="a").listed()
    placed(small, "one", "a", priority=1)
    assert sorted(preempted(small, ["stranger", "one"])) == ["one", "stranger"]


def test_a_preemption_that_would_not_help_is_rejected() -> None:
    small = Small(nodes="a").listed()
    placed(small, "more", "a", priority=2000)
    assert preempted(small, ["more"]) == []


ODD = {
    "by names of a profile that is off": ("main", {"aliyun.com/gpu-mem": "1"}),
    "with an assignment of another container": ("other", {"nvidia.com/gpumem": "100"}),
}


@pytest.mark.parametrize("how", ODD)
def test_an_invalid_bound_pod_does_not_affect_other_nodes(how: str) -> None:
    container, limits = ODD[how]
    small = Small().listed()
    grants = [{"card": "GPU-a-0", "memory_mib": 100, "cores": 0}]
    assignment = {"version": 1, "pod": "uid-odd", "node": "a", "containers": {container: grants}}
    small.create("odd", annotations={pods.annotations.ASSIGNMENT: json.dumps(assignment)})
    small.server.pods["odd"]["spec"] = {
        "nodeName": "a",
        "containers": [{"name": "main", "resources": {"limits": limits}}],
    }
    small.told("odd")
    small.create("new", 100)
    fits = small.fits("new")
    assert "b" in fits
    # The watch has reported it, so no request waits for it.
    for at, name in enumerate(fits):
        small.create(f"new-{at}", 100)
        assert small.bind(f"new-{at}", name) == ""


def test_a_cordon_of_a_missing_card_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    small = Small(["a"]).listed()
    there = node("a", 1)
    annotations = {**there.annotations, "hami.io/cordon": "GPU-a-0,GPU-b-0"}
    mistyped = objects.Node(objects.Metadata(name="a", annotations=annotations))
    for _ in range(2):
        small.cluster.nodes.changed(mistyped)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert "node a: GPU-b-0 is cordoned but is not a card of this node" in said[0]
