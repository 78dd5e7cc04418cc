"""Pods that another replica has bound count, also if this replica cannot read them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from hami_py.errors import InvalidValue
from hami_py.kube import Undecoded
from hami_py.kube.followed import Naming
from hami_py.model import pods
from hami_py.model.pods import wire
from hami_py.scheduler.settings import Timing
from unit.scheduler.leases import ASSIGNMENT
from unit.scheduler.small import Object, Small, away

NOT_TOLD = "the watch has not yet reported that pod ml/theirs is bound"

#: Pods that another replica, of another version, may have bound.
LATER_VERSION: Object = {"metadata": {"annotations": {ASSIGNMENT: '{"version":2,"anything":1}'}}}
DAMAGED: Object = {"metadata": {"annotations": {ASSIGNMENT: '{"version":1}'}}}
UNDECODABLE: Object = {
    "metadata": {"annotations": {ASSIGNMENT: "{}"}},
    "spec": {"priority": "high"},
}
UNREADABLE = [LATER_VERSION, DAMAGED, UNDECODABLE]
NAMES = ["a later version", "damaged", "undecodable"]


def pod_list(items: list[Object], rest: str = "") -> bytes:
    """A page of it, as the API server writes it."""
    metadata = {"resourceVersion": "1", "continue": rest}
    return json.dumps({"kind": "PodList", "metadata": metadata, "items": items}).encode()


def theirs(small: Small, written: Object) -> Object:
    """Another replica has bound a pod to ``a``; the watch told of it while it was waiting."""
    small.create("theirs")
    small.told("theirs")
    pod = small.server.pods["theirs"]
    pod["metadata"].update(written["metadata"])
    pod["spec"].update({"nodeName": "a", **written.get("spec", {})})
    return pod


def tell(small: Small, pod: Object) -> None:
    """The watch tells of it, as the follower hands it on."""
    try:
        small.told("theirs")
    except InvalidValue as error:
        metadata = pod["metadata"]
        naming = Naming(metadata["name"], metadata["namespace"], metadata["uid"])
        raw = msgspec.Raw(json.dumps(pod).encode())
        small.cluster.pods.undecoded(Undecoded(naming, raw, str(error)))


@pytest.mark.parametrize("written", UNREADABLE, ids=NAMES)
def test_an_unreadable_pod_keeps_its_cards(small: Small, written: Object) -> None:
    """Its node is barred when the watch has told of it; until then the card looks free."""
    pod = theirs(small, written)
    small.create("new")
    assert small.fits("new", "a") == ["a"]
    assert NOT_TOLD in small.bind("new", "a")
    assert small.server.written == []
    tell(small, pod)
    assert small.fits("new", "a", "b") == ["b"]
    assert "it does not exist, or has no cards" in small.bind("new", "a")
    assert small.bind("new", "b") == ""
    assert [body["target"]["name"] for body in small.server.written] == ["b"]


@pytest.mark.parametrize("written", UNREADABLE, ids=NAMES)
def test_a_watched_unreadable_pod_does_not_block_other_nodes(small: Small, written: Object) -> None:
    """In a namespace with a quota all of its pods are looked at."""
    small.limit("ml")
    pod = theirs(small, written)
    small.create("new")
    assert NOT_TOLD in small.bind("new", "b")
    tell(small, pod)
    assert small.bind("new", "b") == ""


def test_a_watched_pod_is_not_listed_again(small: Small) -> None:
    """Also if it was deleted since."""
    small.limit("ml")
    pod = theirs(small, LATER_VERSION)
    for name in ("new", "more"):
        small.create(name, 1_000)
        small.told(name)
    asked: list[str] = []
    get = small.server.get

    def counted(path: str, query: Any = None, *, deadline_s: float) -> bytes:
        asked.append(path)
        return get(path, query, deadline_s=deadline_s)

    small.server.get = counted  # type: ignore[method-assign]
    assert NOT_TOLD in small.bind("new", "b")
    # The node, the namespace, and this one, of which there may be another elsewhere.
    looked = ["/api/v1/pods", *["/api/v1/namespaces/ml/pods"] * 2]
    assert asked == looked
    tell(small, pod)
    assert small.bind("new", "b") == ""
    small.cluster.pods.deleted(small.seen("theirs"))
    del small.server.pods["theirs"]
    assert small.bind("more", "b") == ""
    assert asked == looked


@pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown", None])
def test_running_pods_of_a_namespace_with_a_quota_are_listed(
    small: Small, phase: str | None
) -> None:
    small.limit("ml")
    theirs(small, LATER_VERSION)["status"] = {"phase": phase} if phase else {}
    small.create("new")
    assert NOT_TOLD in small.bind("new", "b")
    assert small.server.written == []


def test_finished_pods_are_not_read(small: Small) -> None:
    """They may be many more than those that run."""
    small.limit("ml")
    for number in range(10):
        small.create(f"p{number}")
        small.server.pods[f"p{number}"]["status"] = {"phase": ("Failed", "Succeeded")[number % 2]}
    small.create("new")
    assert small.bind("new", "b") == ""
    assert small.server.listed == ["new"]


def test_a_finished_pod_or_one_without_cards_is_skipped(small: Small) -> None:
    for number, more in enumerate(({"status": {"phase": "Failed"}}, {})):
        small.create(f"p{number}")
        pod = small.server.pods[f"p{number}"]
        pod["spec"].update({"nodeName": "a", "priority": "high"})
        pod.update(more)
        pod["metadata"]["annotations"] = {ASSIGNMENT: "{}"} if more else {}
    small.create("new")
    assert small.bind("new", "a") == ""


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("more", [{}, {"annotations": 3}], ids=["priority", "annotations"])
def test_a_finished_pod_holds_nothing_whatever_its_fields(
    small: Small, more: Object, phase: str
) -> None:
    pod = theirs(small, UNDECODABLE)
    pod["metadata"].update(more)
    pod["status"] = {"phase": phase}
    small.create("new")
    assert small.bind("new", "a") == ""


def test_a_fully_unreadable_pod_is_not_skipped(small: Small) -> None:
    pod = theirs(small, LATER_VERSION)
    pod["metadata"]["annotations"] = 3
    small.create("new")
    assert "it is not known whether pod ml/theirs has cards" in small.bind("new", "a")
    assert small.server.written == []


def test_a_binding_by_another_replica_with_other_cards_is_unknown() -> None:
    """The write of this replica came too late."""
    small = Small(["a"], cards=2).listed()
    small.create("theirs")
    sent: list[wire.Assignment] = []

    def unanswered(body: Object) -> None:
        sent.append(pods.decode_assignment(body["metadata"]["annotations"][ASSIGNMENT]))
        away()

    small.server.before = unanswered
    assert "no answer" in small.bind("theirs", "a")
    small.server.before = lambda _: None
    (grant,) = sent[0].containers["main"]
    card = {"GPU-a-0": "GPU-a-1", "GPU-a-1": "GPU-a-0"}[grant.card]
    small.bound_elsewhere("theirs", "a", wire.CardAllocation(card, grant.memory_mib, grant.cores))
    small.now_s += Timing().bind_s + 1
    small.create("new")
    assert NOT_TOLD in small.bind("new", "a")
    assert small.server.written == []


def test_without_a_lease_an_idle_replica_lists_again(small: Small) -> None:
    """And not while it is asked: each time within the time of a binding after the last."""
    for number in range(4):
        small.create(f"p{number}", 1_000)
        small.told(f"p{number}")
        small.now_s += Timing().bind_s - 1
        assert small.bind(f"p{number}", "a") == ""
    assert small.server.listed == []
    theirs(small, LATER_VERSION)
    small.create("new", 1_000)
    small.now_s += Timing().bind_s + 1
    assert NOT_TOLD in small.bind("new", "a")


def test_an_unbound_pod_has_no_cards_whatever_its_annotations(small: Small) -> None:
    """Else it would keep all of its namespace waiting, as long as it waits."""
    small.limit("ml")
    del theirs(small, LATER_VERSION)["spec"]["nodeName"]
    small.create("new")
    assert small.bind("new", "b") == ""


def test_a_pod_with_an_unreadable_phase_is_not_finished(small: Small) -> None:
    pod = theirs(small, UNDECODABLE)
    pod["status"] = 3
    small.create("new")
    assert NOT_TOLD in small.bind("new", "a")
    tell(small, pod)
    assert small.fits("new", "a", "b") == ["b"]


def test_all_pages_together_end_within_the_time_of_the_binding(small: Small) -> None:
    """Each page may take as long as is left, not as long as the first one."""
    pages: list[float] = []

    def slow(path: str, query: Any = None, *, deadline_s: float) -> bytes:
        assert path == "/api/v1/pods"
        pages.append(deadline_s)
        small.now_s += min(1.5, deadline_s)
        return pod_list([], rest="more")

    small.create("new")
    small.told("new")
    small.server.get = slow  # type: ignore[method-assign]
    assert "there is no time left to bind it" in small.bind("new", "a")
    assert small.now_s <= Timing().bind_s
    assert pages == [4.0, 2.5, 1.0]
    assert small.server.written == []
