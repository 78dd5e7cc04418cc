"""Where there is no time to look at all nodes for victims, the next try goes on where one ended."""

from __future__ import annotations

from typing import Any

from hami_py.model import pods
from hami_py.model.pods import objects
from hami_py.scheduler.extender_api import MetaPod, MetaVictims, PreemptArgs
from hami_py.scheduler.preemption import LastNodes
from unit.scheduler.small import Small, node

#: More than what a namespace's steps are enough for at once.
HOPELESS = [f"n{at:03}" for at in range(230)]
GOOD = "z"


def small_cluster() -> Small:
    """On all nodes but one there is a card too few, which takes long to find out."""
    small = Small([]).listed()
    nodes = [node(name, 16) for name in HOPELESS]
    small.cluster.nodes.replace([*nodes, node(GOOD, 17)])
    small.create("low")
    small.server.pods["low"]["spec"]["priority"] = 1
    small.told("low")
    assert small.bind("low", GOOD) == ""
    small.told("low")
    return small


def urgent(name: str = "urgent") -> objects.Pod:
    """Each of the small ones has a card to itself, and the large one all others."""

    def container(at: int, cards: int, mib: int) -> dict[str, Any]:
        limits = {"nvidia.com/gpu": cards, "nvidia.com/gpumem": mib}
        return {"name": f"c{at}", "resources": {"limits": limits}}

    metadata: dict[str, Any] = {"name": name, "namespace": "ml", "uid": f"uid-{name}"}
    metadata["annotations"] = {"hami.io/gpu-scheduler-policy": "topology-aware"}
    containers = [*(container(at, 1, 5_100) for at in range(3)), container(3, 14, 9_000)]
    return pods.decode_pod.convert(
        {"metadata": metadata, "spec": {"priority": 1000, "containers": containers}}
    )


def preempted(small: Small, pod: objects.Pod) -> list[str]:
    """The nodes with possible victims; kube-scheduler has chosen one pod on each."""
    chosen = {name: MetaVictims([MetaPod(f"uid-on-{name}")]) for name in HOPELESS}
    chosen[GOOD] = MetaVictims([MetaPod("uid-low")])
    return sorted(small.verbs.preempt(PreemptArgs(pod, meta_victims=chosen)).meta_victims)


def test_the_last_nodes_by_name_are_searched_in_a_later_attempt() -> None:
    small = small_cluster()
    assert preempted(small, urgent()) == [], "it was enough for all nodes"
    small.now_s += 60
    assert preempted(small, urgent()) == [GOOD]
    # Another pod does not begin where that one ended.
    small.now_s += 60
    assert preempted(small, urgent("other")) == []


def test_all_nodes_are_searched_over_several_attempts() -> None:
    last_nodes, names = LastNodes(), [f"n{at}" for at in range(10)]
    looked: list[str] = []
    for _ in range(5):
        order = last_nodes.order("a", reversed(names))
        assert sorted(order) == names
        looked += order[:4]
        last_nodes.stopped("a", order[4])
    assert sorted(looked) == sorted(names * 2)
    # The node where the search ended may be deleted.
    last_nodes.stopped("a", "n4")
    assert last_nodes.order("a", ["n1", "n3", "n5"]) == ["n5", "n1", "n3"]
    last_nodes.stopped("a", "x")
    assert last_nodes.order("a", ["n1", "n3"]) == ["n1", "n3"]
    last_nodes.stopped("a", None)
    assert last_nodes.order("a", names) == names


def test_the_least_recently_tried_pods_start_over() -> None:
    last_nodes = LastNodes(most=3)
    for uid in ("a", "b", "c", "a", "d"):
        last_nodes.stopped(uid, "n2")
    begin = {uid: last_nodes.order(uid, ["n1", "n2"])[0] for uid in "abcd"}
    assert begin == {"a": "n2", "b": "n1", "c": "n2", "d": "n2"}
