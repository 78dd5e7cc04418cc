"""The calls of kube-scheduler to an extender, its use of the answers, and the end of its lease."""

import socket
import threading
import uuid
from typing import Any

import pytest

from cluster import extender as extenders
from cluster import objects, waiting
from cluster.api import Api, ApiError, Object
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane
from cluster.extender import CARD, SHARE, Scheduling
from cluster.objects import PODS
from cluster.recorder import Call
from cluster.recordings import Recordings

ONE_POD = {"a": {**CARD, "nvidia.com/gpumem": 3000}}

FILTER, PRIORITIZE, BIND = "/filter", "/prioritize", "/bind"


def test_bind_gets_names_and_the_uid(scheduling: Scheduling, recordings: Recordings) -> None:
    cluster, extender = scheduling({PRIORITIZE: extenders.prefer("b")})
    pod = cluster.api.create(PODS, objects.pod("one", SHARE))
    bound = waiting.bound(cluster.api, "one")
    assert bound["spec"]["nodeName"] == "b"
    assert bound["metadata"]["annotations"] == {extenders.ASSIGNED: "card-0"}
    for verb in (FILTER, PRIORITIZE):
        (asked,) = extender.calls(verb)
        assert sorted(asked.body) == ["NodeNames", "Nodes", "Pod"]
        assert sorted(asked.body["NodeNames"]) == ["a", "b"]
    (bind,) = extender.calls(BIND)
    assert bind.body == {
        "PodName": "one",
        "PodNamespace": "default",
        "PodUID": pod["metadata"]["uid"],
        "Node": "b",
    }
    recordings.keep("extender-bind", bind.body)


@pytest.mark.parametrize(
    ("path", "first", "calls"),
    [
        (FILTER, {"Error": "not ready yet"}, [FILTER, FILTER, PRIORITIZE, BIND]),
        (FILTER, (503, {}), [FILTER, FILTER, PRIORITIZE, BIND]),
        # It is ignored: the pod is bound by the scores of others.
        (PRIORITIZE, (500, {}), [FILTER, PRIORITIZE, BIND]),
        (BIND, {"Error": "the card is taken"}, 2 * [FILTER, PRIORITIZE, BIND]),
    ],
)
def test_an_error_is_retried_from_the_filter_but_not_that_of_prioritize(
    scheduling: Scheduling, path: str, first: Any, calls: list[str]
) -> None:
    left = [first]

    def answer(call: Call) -> Any:
        if left:
            return left.pop()
        if path == FILTER:
            return extenders.filter_all(call)
        return extenders.bind_with(lambda: cluster.api)(call)

    cluster, extender = scheduling({path: answer})
    cluster.api.create(PODS, objects.pod("one", SHARE))
    waiting.bound(cluster.api, "one")
    assert [call.path for call in extender.calls()] == calls


def test_a_filter_response_without_nodes_rejects_all_nodes(scheduling: Scheduling) -> None:
    cluster, _ = scheduling({FILTER: lambda call: {}})
    cluster.api.create(PODS, objects.pod("one", SHARE))
    message = waiting.unschedulable(cluster.api, "one")
    assert message.startswith("0/2 nodes are available"), message


def test_the_next_pod_is_filtered_before_the_last_one_is_bound(scheduling: Scheduling) -> None:
    held = threading.Event()
    binders: list[str] = []

    def hold_first(call: Call) -> Object:
        binders.append(call.body["PodName"])
        if call.body["PodName"] == "one":
            assert held.wait(60.0)
        return extenders.bind_with(lambda: cluster.api)(call)

    cluster, extender = scheduling({BIND: hold_first}, httpTimeout="60s")
    try:
        cluster.api.create(PODS, objects.pod("one", SHARE))
        extender.wait_for(BIND, 1)
        cluster.api.create(PODS, objects.pod("two", SHARE))
        waiting.bound(cluster.api, "two")
        assert "nodeName" not in cluster.api.get(f"{PODS}/one")["spec"]
    finally:
        held.set()
    waiting.bound(cluster.api, "one")
    assert binders == ["one", "two"]


def priority_class(cluster: ControlPlane, name: str, value: int) -> None:
    body = {"metadata": {"name": name}, "value": value}
    cluster.api.create("/apis/scheduling.k8s.io/v1/priorityclasses", body)
    waiting.takes(cluster.api, objects.pod(priorityClassName=name))


def preempted(cluster: ControlPlane) -> Object:
    """A pod of low priority has the node; one of high priority comes."""
    priority_class(cluster, "high", 1000)
    low = cluster.api.create(PODS, objects.pod("low", SHARE))
    waiting.bound(cluster.api, "low")
    cluster.api.create(PODS, objects.pod("high", SHARE, priorityClassName="high"))
    return low


def test_preempt_is_not_called_for_a_shortage_that_only_the_extender_sees(
    scheduling: Scheduling,
) -> None:
    def filter_one(call: Call) -> Object:
        is_low = call.body["Pod"]["metadata"]["name"] == "low"
        return (extenders.filter_all if is_low else extenders.filter_none)(call)

    cluster, extender = scheduling({FILTER: filter_one})
    preempted(cluster)
    message = waiting.unschedulable(cluster.api, "high")
    # In-tree filters pass without evictions, so the dry run finds no victims and gives up.
    assert "expected at least one victim pod" in message
    assert extender.calls("/preempt") == []


@pytest.mark.parametrize("kind", ["names", "nodes"])
def test_preempt_is_called_for_a_shortage_that_the_scheduler_sees(
    scheduling: Scheduling, recordings: Recordings, kind: str
) -> None:
    """Filter and preempt get whole nodes and pods unless the extender caches nodes."""
    cluster, extender = scheduling(nodes=ONE_POD, nodeCacheCapable=kind == "names")
    low = preempted(cluster)
    asked, filtered = extender.wait_for("/preempt")[0].body, extender.calls(FILTER)[0].body
    recordings.keep(f"extender-filter-{kind}", filtered)
    recordings.keep(f"extender-preempt-{kind}", asked)
    assert (filtered["NodeNames"] is None) == (filtered["Nodes"] is not None) == (kind == "nodes")
    if kind == "names":
        assert asked["NodeNameToVictims"] is None
        victims = asked["NodeNameToMetaVictims"]["a"]["Pods"]
        assert victims == [{"UID": low["metadata"]["uid"]}]
    else:
        victims = asked["NodeNameToVictims"]["a"]["Pods"]
        assert [victim["metadata"]["name"] for victim in victims] == ["low"]
    waiting.gone(cluster.api, f"{PODS}/low")
    waiting.bound(cluster.api, "high")


def test_victims_that_the_extender_adds_are_evicted_whatever_their_priority(
    scheduling: Scheduling,
) -> None:
    added: list[str] = []

    def preempt(call: Call) -> Object:
        return {
            "NodeNameToMetaVictims": {
                node: {**victims, "Pods": [*victims["Pods"], *({"UID": uid} for uid in added)]}
                for node, victims in call.body["NodeNameToMetaVictims"].items()
            }
        }

    cluster, _ = scheduling({"/preempt": preempt}, nodes=ONE_POD)
    priority_class(cluster, "higher", 2000)
    higher = objects.pod("higher", {"cpu": 1}, priorityClassName="higher")
    added.append(cluster.api.create(PODS, higher)["metadata"]["uid"])
    waiting.bound(cluster.api, "higher")
    preempted(cluster)
    for name in ("low", "higher"):
        waiting.gone(cluster.api, f"{PODS}/{name}")


LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/findings"
ELECTION = {"leaderElect": True, "resourceName": "findings", "resourceNamespace": "kube-system"}


def renewed(api: Api) -> Object | None:
    """The lease once it is held and was renewed: the next renewal is seconds away then.

    One that is on its way when kube-scheduler is told to end may keep the lease from being given
    back.
    """
    try:
        spec: Object = api.get(LEASE)["spec"]
    except ApiError:
        return None
    return spec if spec.get("holderIdentity") and spec["renewTime"] > spec["acquireTime"] else None


def test_a_lease_is_released_at_the_end(control_plane: StartControlPlane) -> None:
    """The next holder waits for nothing then: neither for leaseDuration nor for renewDeadline."""
    cluster = control_plane(scheduler={"leaderElection": ELECTION})
    held = waiting.until(lambda: renewed(cluster.api), "it leads, and has renewed once")
    # An extender in the same pod knows by that whose it is.
    host, _, its_own = held["holderIdentity"].rpartition("_")
    assert host == socket.gethostname()
    uuid.UUID(its_own)
    cluster.scheduler.stop()
    given_back = cluster.api.get(LEASE)["spec"]
    assert given_back["holderIdentity"] == ""
    assert given_back["leaseDurationSeconds"] == 1
    # The time and the number of transitions show the next holder.
    cluster.scheduler.start()
    taken = waiting.until(lambda: renewed(cluster.api), "it leads again")
    assert taken["leaseTransitions"] == held["leaseTransitions"] + 1
    assert taken["acquireTime"] > given_back["acquireTime"] >= held["acquireTime"]
