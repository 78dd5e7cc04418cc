"""How long cards are held for a pod that kube-scheduler binds later, and what ends that early."""

from __future__ import annotations

from typing import Any

import pytest

from support.extender_calls import filtered, rated
from unit.scheduler.small import Object, Small, node

CLAIMING: dict[str, Object] = {
    "a claim": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
    "an ephemeral volume": {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]},
    "a device": {"resourceClaims": [{"name": "nic", "resourceClaimName": "nic"}]},
}


def stand() -> Small:
    """One card, and two pods that each want all of it; ``first`` claims a volume."""
    small = Small(nodes="a").listed()
    small.create("first")
    small.server.pods["first"]["spec"].update(CLAIMING["a claim"])
    small.create("next")
    return small


def scheduled(small: Small, name: str = "first") -> None:
    """kube-scheduler has chosen the one node, and waits for the volume."""
    assert small.fits(name, "a") == ["a"]


def later(small: Small, seconds: float) -> None:
    """The periodic work of the service, every second."""
    for _ in range(int(seconds)):
        small.now_s += 1
        small.verbs.holds.expire()


def says(small: Small, message: str, name: str = "first", **more: Any) -> None:
    """kube-scheduler writes that its attempt has failed; the watch does not tell of it yet."""
    failed = {"type": "PodScheduled", "status": "False", "message": message, **more}
    small.server.pods[name]["status"] = {"conditions": [failed]}


@pytest.mark.parametrize("what", CLAIMING)
def test_cards_are_held_until_claims_are_bound(what: str) -> None:
    small = stand()
    small.server.pods["first"]["spec"] = {
        "containers": small.server.pods["first"]["spec"]["containers"],
        **CLAIMING[what],
    }
    small.told("first")
    scheduled(small)
    later(small, 590)
    assert small.fits("next", "a") == []
    assert small.bind("first", "a") == ""
    later(small, 60)
    assert small.fits("next", "a") == []


@pytest.mark.parametrize("volume", [None, {"emptyDir": {}}, {"hostPath": {"path": "/data"}}])
def test_other_pods_are_held_for_seconds(volume: Object | None) -> None:
    small = stand()
    small.server.pods["first"]["spec"]["volumes"] = [{"name": "v", **volume}] if volume else None
    small.told("first")
    scheduled(small)
    later(small, 4)
    assert small.fits("next", "a") == []
    later(small, 1)
    assert small.fits("next", "a") == ["a"]


def test_no_hold_lasts_longer_than_kube_scheduler_waits() -> None:
    small = stand()
    small.told("first")
    scheduled(small)
    later(small, 605)
    assert small.fits("next", "a") == ["a"]


def test_a_hold_ends_when_the_pod_is_filtered_again() -> None:
    small = stand()
    small.told("first")
    scheduled(small)
    # This time it fits, and something else of kube-scheduler's turns it away.
    assert small.fits("first", "b") == []
    assert small.fits("next", "a") == ["a"]


@pytest.mark.parametrize("how", ["gone", "ended", "absent", "going"])
def test_a_hold_ends_with_its_pod(how: str) -> None:
    small = stand()
    small.told("first")
    scheduled(small)
    if how == "gone":
        small.cluster.pods.deleted(small.seen("first"))
    elif how == "ended":
        small.server.pods["first"]["status"] = {"phase": "Failed"}
        small.told("first")
    elif how == "absent":
        small.cluster.pods.replace([])
    else:
        small.server.pods["first"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        small.told("first")
        later(small, 5)
    assert small.fits("next", "a") == ["a"]


def test_a_hold_ends_when_kube_scheduler_has_given_up() -> None:
    small = stand()
    small.told("first")
    scheduled(small)
    later(small, 100)
    says(small, "binding volumes: context deadline exceeded")
    small.told("first")
    later(small, 1)
    assert small.fits("next", "a") == ["a"]


def test_an_earlier_attempts_failure_ends_no_hold() -> None:
    small = stand()
    says(small, "0/1 nodes are available")
    small.told("first")
    scheduled(small)
    # Something else of it changes, and it is told of once more.
    small.server.pods["first"]["metadata"]["labels"] = {"x": "y"}
    small.told("first")
    later(small, 100)
    assert small.fits("next", "a") == []
    says(small, "binding volumes: context deadline exceeded")
    small.told("first")
    later(small, 1)
    assert small.fits("next", "a") == ["a"]


def test_an_earlier_attempts_failure_that_only_kube_scheduler_knows_ends_no_hold() -> None:
    small = stand()
    small.told("first")
    says(small, "0/1 nodes are available")
    scheduled(small)
    small.told("first")
    later(small, 100)
    assert small.fits("next", "a") == []


def test_a_late_event_of_an_earlier_failure_leaves_the_short_hold() -> None:
    small = stand()
    small.told("first")
    scheduled(small)
    says(small, "0/1 nodes are available")
    small.told("first")
    later(small, 4)
    assert small.fits("next", "a") == []


def test_a_pod_outside_the_watch_is_held_for_seconds() -> None:
    """Its deletion would go unnoticed."""
    small = stand()
    scheduled(small)
    later(small, 4)
    assert small.fits("next", "a") == []
    later(small, 1)
    assert small.fits("next", "a") == ["a"]


def test_a_binding_without_an_answer_is_not_a_hold() -> None:
    def away(*_: object) -> None:
        raise OSError

    small = stand()
    small.told("first")
    scheduled(small)
    small.server.before = away
    with pytest.raises(OSError):
        small.bind("first", "a")
    says(small, "binding rejected")
    small.told("first")
    later(small, 10)
    assert small.fits("next", "a") == []


def nominated(small: Small, node: str | None) -> None:
    """kube-scheduler writes which node it waits for, or that it waits for none."""
    small.server.pods["first"]["status"] = {"nominatedNodeName": node} if node else {}
    small.told("first")


def on_two() -> Small:
    """Nodes a and b with a card each; a is held for ``first``."""
    small = stand()
    small.cluster.nodes.changed(node("b", 1))
    small.told("first")
    assert small.fits("first") == ["a", "b"]
    rated(small.verbs, small.seen("first"), ["a", "b"])
    assert small.fits("next", "a", "none") == []
    return small


def test_the_hold_is_where_kube_scheduler_waits() -> None:
    small = on_two()
    nominated(small, "b")
    later(small, 1)
    assert small.fits("next", "b") == []
    later(small, 590)
    assert small.fits("next", "b") == []
    assert small.fits("next", "a") == ["a"]


def test_a_hold_does_not_move_to_a_card_that_is_taken() -> None:
    """The chosen node's card was given away before kube-scheduler said what it had chosen."""
    small = on_two()
    assert small.bind("next", "b") == ""
    nominated(small, "b")
    later(small, 1)
    small.create("third")
    assert small.fits("third", "a") == ["a"]


def test_a_hold_ends_when_the_nominated_node_is_removed() -> None:
    """The attempt fails for the same reason as the last one: the condition stays as it was."""
    small = on_two()
    nominated(small, "b")
    later(small, 100)
    nominated(small, None)
    later(small, 1)
    assert small.fits("next") == ["a", "b"]


def test_a_failure_before_the_nomination_is_an_earlier_attempts() -> None:
    """A pod that is tried again at once is faster than what is written of the attempt before."""
    small = on_two()
    says(small, "0/1 nodes are available")
    small.told("first")
    later(small, 1)
    small.server.pods["first"]["status"]["nominatedNodeName"] = "b"
    small.told("first")
    later(small, 100)
    assert small.fits("next", "b") == []
    says(small, "binding volumes: context deadline exceeded")
    small.server.pods["first"]["status"]["nominatedNodeName"] = "b"
    small.told("first")
    later(small, 1)
    assert small.fits("next") == ["a", "b"]


def test_the_node_of_an_earlier_attempt_is_not_followed() -> None:
    """Of a preemption, for one."""
    small = stand()
    small.cluster.nodes.changed(node("b", 1))
    nominated(small, "b")
    rated(small.verbs, small.seen("first"), ["a", "b"])
    later(small, 100)
    assert small.fits("next", "a", "none") == []
    assert small.fits("next", "b") == ["b"]


def test_a_binding_without_an_answer_stays_on_its_node() -> None:
    def away(*_: object) -> None:
        raise OSError

    small = on_two()
    small.server.before = away
    with pytest.raises(OSError):
        small.bind("first", "a")
    nominated(small, "b")
    later(small, 10)
    assert small.fits("next", "a", "none") == []


def test_a_long_hold_does_not_block_preemption() -> None:
    """With an error kube-scheduler would retry the pod, and evict no pod on any node."""
    small = stand()
    small.told("first")
    scheduled(small)
    for seconds in (0, 10, 580):
        later(small, seconds)
        answer = filtered(small.verbs, small.seen("next"), ["a"])
        assert (answer.error, set(answer.failed_nodes)) == ("", {"a"}), seconds
    # In its last seconds it is waited for like any other.
    later(small, 12)
    assert "held for other pods" in filtered(small.verbs, small.seen("next"), ["a"]).error


def test_a_pod_waits_for_a_short_hold() -> None:
    small = stand()
    small.create("quick")
    assert small.fits("quick", "a") == ["a"]
    assert "held for other pods" in filtered(small.verbs, small.seen("next"), ["a"]).error
