"""Cards that preemption frees: which pods get them, and when they are free for others."""

from __future__ import annotations

from hami_py.scheduler.extender_api import MetaPod, MetaVictims, PreemptArgs
from support.extender_calls import rated
from unit.scheduler.small import Small


def stand(victims: tuple[str, ...] = ("victim",), mib: int = 10_000) -> Small:
    """Nodes a and b: a is full of victims and b of ``other``; ``low`` and ``high`` wait."""
    small = Small().listed()
    for name, node in (*((name, "a") for name in victims), ("other", "b")):
        small.create(name, mib if node == "a" else 10_000)
        small.told(name)
        assert small.bind(name, node) == ""
        small.told(name)
    small.create("low", 5000)
    small.create("high", 10_000)
    small.server.pods["high"]["spec"]["priority"] = 1000
    for name in ("low", "high"):
        small.told(name)
        assert small.fits(name) == []
    return small


def preempts(small: Small, **victims: list[str]) -> None:
    """kube-scheduler names victims by node, and the extender agrees."""
    proposed = {
        node: MetaVictims([MetaPod(f"uid-{name}") for name in names])
        for node, names in victims.items()
    }
    answer = small.verbs.preempt(PreemptArgs(small.seen("high"), meta_victims=proposed))
    assert answer.meta_victims.keys() == proposed.keys()


def terminating(small: Small, name: str) -> None:
    small.server.pods[name]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    small.told(name)


def gone(small: Small, name: str) -> None:
    small.cluster.pods.deleted(small.seen(name))


def later(small: Small, seconds: int) -> None:
    """The periodic work of the service, every second."""
    for _ in range(seconds):
        small.now_s += 1
        small.verbs.holds.expire()


def test_a_freed_card_is_the_preemptors_until_it_is_bound() -> None:
    small = stand()
    preempts(small, a=["victim"], b=["other"])
    terminating(small, "victim")
    # It is tried again too early, and then kube-scheduler removes the nomination.
    assert small.fits("high") == []
    small.told("high")
    gone(small, "victim")
    assert small.fits("low") == []
    later(small, 10)
    assert small.fits("low") == []
    assert small.fits("high") == ["a"]
    assert small.bind("high", "a") == ""
    small.told("high")
    later(small, 100)
    gone(small, "high")
    assert small.fits("low") == ["a"]


def test_room_beside_a_victim_is_held_while_it_terminates() -> None:
    """As long as that takes."""
    small = stand(victims=("victim", "second"), mib=5000)
    preempts(small, a=["victim", "second"])
    terminating(small, "second")
    gone(small, "victim")
    later(small, 300)
    assert small.fits("low", "a") == []
    gone(small, "second")
    assert small.fits("low", "a") == []
    assert small.fits("high", "a") == ["a"]


def test_a_freed_card_is_free_for_others_after_a_minute() -> None:
    small = stand()
    preempts(small, a=["victim"])
    later(small, 20)
    terminating(small, "victim")
    later(small, 1)
    gone(small, "victim")
    changes = small.cluster.requeuer.changes
    later(small, 59)
    assert small.fits("low") == []
    later(small, 1)
    assert small.fits("low") == ["a"]
    assert small.cluster.requeuer.changes > changes


def test_a_freed_card_is_free_for_others_without_the_preemptor() -> None:
    small = stand()
    preempts(small, a=["victim"])
    gone(small, "victim")
    assert small.fits("low") == []
    gone(small, "high")
    assert small.fits("low") == ["a"]


def test_victims_of_other_nodes_do_not_move_the_hold() -> None:
    small = stand()
    preempts(small, a=["victim"], b=["other"])
    terminating(small, "victim")
    gone(small, "other")
    assert small.fits("low") == ["b"]
    gone(small, "victim")
    assert small.fits("low") == ["b"]


def test_a_pod_that_ends_later_frees_its_card_for_others() -> None:
    """kube-scheduler has evicted none of the named victims."""
    small = stand()
    preempts(small, a=["victim"])
    later(small, 60)
    gone(small, "victim")
    assert small.fits("low") == ["a"]


def test_a_freed_card_is_held_again_after_a_failed_attempt() -> None:
    small = stand()
    preempts(small, a=["victim"])
    gone(small, "victim")
    rated(small.verbs, small.seen("high"), ["a", "b"])
    later(small, 20)
    assert small.fits("low") == []
    assert small.fits("high") == ["a"]
