"""The kept data of pods that wait to be bound, and how long it is kept."""

import pytest

from hami_py.scheduler.state.waiting import WaitingPods
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
