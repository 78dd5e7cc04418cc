"""Objects that we cannot decode, as a later Kubernetes may have them: they are there, though."""

from __future__ import annotations

from typing import Any

import pytest

from histories.replica import Replica
from histories.status_errors import Object
from histories.test_regressions import PODS, Stand

NODE = "/api/v1/nodes/n0"
QUOTAS = "/api/v1/namespaces/x/resourcequotas"

NOT_THERE = (
    "node n0: it does not exist, or has no cards; do nothing: kube-scheduler tries another node"
)

#: A priority is a number, annotations are texts.
STRANGE_POD: Object = {"metadata": {}, "spec": {"priority": "high"}}
STRANGE_NODE: Object = {"metadata": {"labels": 3}}
STRANGE_QUOTA: Object = {"metadata": {}, "spec": {"hard": 3}}


def told(stand: Stand, how: str, replica: Replica) -> Replica:
    """The watch, a new list, or the first list of a new replica reports the change."""
    if how == "a restart":
        return stand.replica("new")
    if how == "a list":
        stand.api.forget()
        for watch in replica.watches:
            watch.step()
        stand.clock.advance(stand.clock.now + 1)
    stand.tell(replica)
    return replica


def placed(stand: Stand, replica: Replica) -> None:
    """A pod `p` with 6000 MiB of the one card, as the watch has told."""
    assert stand.bind(replica, stand.pod("p"), "n0") == ""
    stand.tell(replica)


@pytest.mark.parametrize("how", ["the watch", "a list", "a restart"])
def test_a_pod_that_cannot_be_decoded_keeps_its_cards(how: str) -> None:
    stand = Stand("n0")
    replica = stand.replica("a")
    placed(stand, replica)
    stand.do("PATCH", f"{PODS}/p", STRANGE_POD)
    replica = told(stand, how, replica)
    assert replica.pods.follower.undecoded > 0
    assert replica.pods.follower.lists == (2 if how == "a list" else 1)
    assert stand.filter(replica, stand.pod("large", 6000)) == []
    # A replica that knew it before knows the rest; one that has never seen it cannot.
    small = stand.pod("small", 4000)
    assert stand.filter(replica, small) == ([] if how == "a restart" else ["n0"])
    # Also where others may have bound meanwhile.
    stand.clock.advance(stand.clock.now + 10)
    assert stand.bind(replica, small, "n0") == (NOT_THERE if how == "a restart" else "")
    stand.do("DELETE", f"{PODS}/p")
    stand.do("DELETE", f"{PODS}/small")
    stand.tell(replica)
    assert stand.filter(replica, stand.pod("next", 10_000)) == ["n0"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("how", ["the watch", "a list", "a restart"])
def test_a_finished_pod_that_cannot_be_decoded_releases_its_cards(how: str, phase: str) -> None:
    """It barred its node, or kept its cards, until it was deleted."""
    stand = Stand("n0")
    known = stand.replica("a")
    placed(stand, known)
    stand.do("PATCH", f"{PODS}/p", STRANGE_POD)
    stand.tell(known)
    late = stand.replica("b")
    new = stand.pod("new", 10_000)
    assert [stand.filter(replica, new) for replica in (known, late)] == [[], []]
    stand.do("PATCH", f"{PODS}/p", {"metadata": {"labels": {"n": 3}}, "status": {"phase": phase}})
    now = [told(stand, how, replica) for replica in (known, late)]
    assert [stand.filter(replica, new) for replica in now] == [["n0"], ["n0"]]
    stand.clock.advance(stand.clock.now + 10)
    assert stand.bind(now[0], new, "n0") == ""


def test_an_undecodable_pod_without_cards_blocks_no_node() -> None:
    stand = Stand("n0")
    replica = stand.replica("a")
    changes: tuple[Object, ...] = (
        {},
        {"spec": {"nodeName": "n0"}},
        {
            "metadata": {"annotations": {"hami.io/assignment": "{}"}},
            "spec": {"nodeName": "n0"},
            "status": {"phase": "Succeeded"},
        },
    )
    for number, more in enumerate(changes):
        stand.pod(f"p{number}")
        stand.do("PATCH", f"{PODS}/p{number}", {"metadata": {}, **more})
        stand.do("PATCH", f"{PODS}/p{number}", STRANGE_POD)
    stand.tell(replica)
    assert replica.pods.follower.undecoded == 3
    for each in (replica, stand.replica("new")):
        assert stand.filter(each, stand.pod(f"next-{each.name}", 10_000)) == ["n0"]
        each.cluster.allocator.expire(1 << 62)


@pytest.mark.parametrize("how", ["the watch", "a list", "a restart"])
def test_a_node_that_cannot_be_decoded_keeps_its_cards(how: str) -> None:
    stand = Stand("n0")
    replica = stand.replica("a")
    placed(stand, replica)
    stand.do("PATCH", NODE, STRANGE_NODE)
    replica = told(stand, how, replica)
    assert stand.filter(replica, stand.pod("large", 6000)) == []
    small = stand.pod("small", 4000)
    assert stand.filter(replica, small) == ([] if how == "a restart" else ["n0"])
    stand.do("DELETE", NODE)
    stand.tell(replica)
    assert "node n0" in stand.bind(replica, small, "n0")


@pytest.mark.parametrize("how", ["the watch", "a list", "a restart"])
def test_an_undecodable_quota_keeps_its_limits_or_allows_nothing(how: str) -> None:
    stand = Stand("n0")
    replica = stand.replica("a")
    hard: Any = {"limits.nvidia.com/gpumem": "5000"}
    stand.do("POST", QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    stand.tell(replica)
    stand.do("PATCH", f"{QUOTAS}/q", STRANGE_QUOTA)
    replica = told(stand, how, replica)
    assert stand.filter(replica, stand.pod("large", 6000)) == []
    small = stand.pod("small", 4000)
    assert stand.filter(replica, small) == ([] if how == "a restart" else ["n0"])
    stand.do("DELETE", f"{QUOTAS}/q")
    stand.tell(replica)
    assert stand.filter(replica, stand.pod("next", 6000)) == ["n0"]
