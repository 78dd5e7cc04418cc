"""What is remembered of pods that wait to be bound, and for how long."""

import pytest

from hami_py.scheduler.state.waiting import WaitingPods
from unit.scheduler.small import Small


def test_pods_that_no_watch_tells_of_are_not_kept_for_ever() -> None:
    small = Small().listed()
    for i in range(3000):
        small.create(f"p{i}")
        small.fits(f"p{i}")
        del small.server.pods[f"p{i}"]
    assert len(small.cluster.waiting) <= 1024


def test_of_those_the_last_that_were_asked_for_are_kept() -> None:
    small = Small().listed()
    for i in range(1024):
        small.create(f"p{i}")
        small.fits(f"p{i}")
    small.fits("p0")
    small.create("last")
    small.fits("last")
    find = small.cluster.waiting.find
    assert [name for name in ("p0", "p1", "last") if find(f"uid-{name}")] == ["p0", "last"]


def test_those_that_the_watch_tells_of_are_kept_until_it_says_that_they_are_gone() -> None:
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


def test_whose_request_is_not_here_any_more_is_read_when_it_is_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = Small().listed()
    small.create("p")
    small.fits("p")
    monkeypatch.setattr(small.cluster, "waiting", WaitingPods())
    assert small.bind("p", "a") == ""


def test_a_pod_that_has_ended_or_is_gone_holds_nothing_whatever_comes_late() -> None:
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
    # A late filter, and a late bind, of what is gone.
    assert small.bind("deleted", "a") != ""
    assert small.fits("next", "a") == ["a"]
