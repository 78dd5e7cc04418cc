"""The kept data of pods that wait to be bound, and how long it is kept."""

import pytest

from hami_py.cluster.waiting import Wait, WaitingPods, reason_of
from hami_py.model.pods.objects import Condition
from unit.scheduler.small import Small


def test_unwatched_pods_are_forgotten_after_a_while() -> None:
    small = Small().listed()
    for i in range(3000):
        small.create(f"p{i}")
        small.fits(f"p{i}")
        del small.server.pods[f"p{i}"]
    assert len(small.cluster.waiting) <= 1024


def test_the_most_recently_filtered_unwatched_pods_are_kept() -> None:
    small = Small().listed()
    for i in range(1024):
        small.create(f"p{i}")
        small.fits(f"p{i}")
    small.fits("p0")
    small.create("last")
    small.fits("last")
    find = small.cluster.waiting.find
    assert [name for name in ("p0", "p1", "last") if find(f"uid-{name}")] == ["p0", "last"]


def test_watched_pods_are_kept_until_they_are_deleted() -> None:
    small = Small().listed()
    for i in range(3000):
        small.create(f"p{i}")
        small.told(f"p{i}")
    first = small.cluster.waiting.find("uid-p0")
    assert first is not None
    assert first.request.pod.name == "p0"
    for i in range(3000):
        small.cluster.pods.deleted(small.seen(f"p{i}"))
    assert len(small.cluster.waiting) == 0


def test_a_pod_without_a_kept_request_is_read_when_it_is_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = Small().listed()
    small.create("p")
    small.fits("p")
    monkeypatch.setattr(small.cluster, "waiting", WaitingPods())
    assert small.bind("p", "a") == ""


def test_an_ended_or_deleted_pod_holds_nothing_after_late_events() -> None:
    small = Small(nodes="a").listed()
    for name, phase in (("done", "Succeeded"), ("broken", "Failed"), ("deleted", "Running")):
        small.create(name)
        small.told(name)
        assert small.bind(name, "a") == ""
        small.told(name)
        small.create("next")
        assert small.fits("next", "a") == []
        before = small.seen(name)
        if phase == "Running":
            small.cluster.pods.deleted(before)
            del small.server.pods[name]
        else:
            small.server.pods[name]["status"] = {"phase": phase}
            small.told(name)
            small.told(name)
        assert small.fits("next", "a") == ["a"]
        # The hold for it is over.
        small.now_s += 10
    # A late filter, and a late bind, of a deleted pod.
    assert small.bind("deleted", "a") != ""
    assert small.fits("next", "a") == ["a"]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (
            "0/7 nodes are available: 2 Insufficient nvidia.com/gpu, 4 too little memory free on"
            " its cards, 1 node(s) were unschedulable. preemption: 0/7 nodes are available: 7 No"
            " preemption victims found for incoming pod.",
            "too little memory free on its cards",
        ),
        (
            "0/2 nodes are available: 2 no NUMA node has 3 fitting cards.",
            "no NUMA node has … fitting cards",
        ),
        (
            "0/9 nodes are available: 9 quota mine of namespace ml allows 5 cards: 4 in use, 2"
            " requested. preemption: not eligible",
            "a quota is reached",
        ),
        ("0/1 nodes are available: 1 the pod is bound to node n1.", "the pod is bound to node …"),
        ("0/2 nodes are available: 1 b, 1 a.", "a"),
        ("the cluster is not known yet; kube-scheduler tries the pod again", "other"),
        (None, "other"),
    ],
)
def test_a_reason_is_the_one_of_most_nodes_without_names(message: str | None, reason: str) -> None:
    assert reason_of(Condition("PodScheduled", "False", "Unschedulable", message)) == reason


def test_waiting_pods_are_counted_by_reason_with_the_age_of_the_oldest() -> None:
    small = Small().listed()
    failed = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    for name, second, conditions in (("a", 10, []), ("b", 40, []), ("c", 20, [failed])):
        small.create(name, creationTimestamp=f"1970-01-01T00:00:{second}Z")
        small.server.pods[name]["status"] = {"conditions": conditions}
        small.told(name)
    waiting = small.cluster.waiting
    assert waiting.reasons(100.0) == {
        "not tried yet": Wait(2, 90.0),
        "it has scheduling gates": Wait(1, 80.0),
    }
    small.server.pods["c"]["metadata"]["deletionTimestamp"] = "1970-01-01T00:01:00Z"
    small.told("c")
    small.cluster.pods.deleted(small.seen("a"))
    assert waiting.reasons(30.0) == {"not tried yet": Wait(1, 0.0)}, "clocks may differ"
