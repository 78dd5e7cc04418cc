"""Containers that wait at their start, and which pods are evicted for it."""

from hami_py.agent.holds import EVICT_AFTER_S, Holds
from hami_py.agent.pods import NodePod, NodePodMetadata, Owner


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def pod(uid: str, *, owned: bool) -> NodePod:
    owners = (Owner("ReplicaSet", "r", controller=True),) if owned else ()
    return NodePod(NodePodMetadata(name=uid, uid=uid, owner_references=owners))


PODS = {"owned": pod("owned", owned=True), "bare": pod("bare", owned=False)}


def held(clock: Clock, *pods: str, may_be_evicted: bool = True) -> Holds:
    holds = Holds(clock)
    for uid in pods:
        holds.hold(uid, "main", "why", may_be_evicted=may_be_evicted)
    return holds


def evicted(holds: Holds) -> str | None:
    found = holds.to_evict(PODS.get)
    return found.uid if found is not None else None


def test_a_pod_with_a_controller_is_evicted_when_waiting_does_not_help() -> None:
    clock = Clock()
    holds = held(clock, "owned")
    clock.now = EVICT_AFTER_S - 1
    assert evicted(holds) is None
    clock.now = EVICT_AFTER_S
    assert evicted(holds) == "owned"


def test_a_pod_without_a_controller_is_never_evicted() -> None:
    clock = Clock()
    holds = held(clock, "bare")
    clock.now = 10 * EVICT_AFTER_S
    assert evicted(holds) is None
    assert [each.pod for each in holds.all()] == ["bare"]


def test_a_container_that_waits_for_others_is_not_evicted() -> None:
    clock = Clock()
    holds = held(clock, "owned", may_be_evicted=False)
    clock.now = 10 * EVICT_AFTER_S
    assert evicted(holds) is None


def test_the_time_counts_from_the_first_try() -> None:
    clock = Clock()
    holds = held(clock, "owned")
    clock.now = EVICT_AFTER_S
    holds.hold("owned", "main", "another reason", may_be_evicted=True)
    assert holds.all()[0].since == 0.0
    assert evicted(holds) == "owned"


def test_evictions_have_a_pause_between_them() -> None:
    clock = Clock()
    holds = held(clock, "owned")
    clock.now = EVICT_AFTER_S
    assert evicted(holds) == "owned"
    clock.now += 1
    assert evicted(holds) is None
    clock.now += 10
    assert evicted(holds) == "owned"


def test_a_container_that_starts_or_ends_waits_no_more() -> None:
    clock = Clock()
    holds = held(clock, "owned", "bare")
    holds.started("owned", "main")
    assert [each.pod for each in holds.all()] == ["bare"]
    holds.keep([])
    assert holds.all() == []
