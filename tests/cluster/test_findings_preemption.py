"""When kube-scheduler asks an extender whom to evict, and what it does with the answers."""

import threading

import pytest

from cluster import extender as extenders
from cluster import objects, waiting
from cluster.api import Object
from cluster.control_plane import ControlPlane
from cluster.extender import CARD, SHARE, Scheduling
from cluster.objects import PODS
from cluster.recorder import Call
from cluster.recordings import Recordings


def priority_class(cluster: ControlPlane, name: str, value: int) -> None:
    body = {"metadata": {"name": name}, "value": value}
    cluster.api.create("/apis/scheduling.k8s.io/v1/priorityclasses", body)
    waiting.takes(cluster.api, objects.pod(priorityClassName=name))


def test_preempt_is_not_called_for_a_shortage_that_only_the_extender_sees(
    scheduling: Scheduling,
) -> None:
    full = threading.Event()

    def filter_until_full(call: Call) -> Object:
        return (extenders.filter_none if full.is_set() else extenders.filter_all)(call)

    cluster, extender = scheduling({"/filter": filter_until_full})
    priority_class(cluster, "high", 1000)
    cluster.api.create(PODS, objects.pod("low", SHARE))
    waiting.bound(cluster.api, "low")
    full.set()
    cluster.api.create(PODS, objects.pod("high", SHARE, priorityClassName="high"))
    message = waiting.unschedulable(cluster.api, "high")
    # In-tree filters pass without evictions, so the dry run finds no victims and gives up.
    assert "expected at least one victim pod" in message
    assert extender.calls("/preempt") == []


@pytest.mark.parametrize("cached", [True, False])
def test_preempt_is_called_for_a_shortage_that_the_scheduler_sees(
    scheduling: Scheduling, recordings: Recordings, cached: bool
) -> None:
    one = {**CARD, "nvidia.com/gpumem": 3000}
    cluster, extender = scheduling(nodes={"a": one}, nodeCacheCapable=cached)
    priority_class(cluster, "high", 1000)
    low = cluster.api.create(PODS, objects.pod("low", SHARE))
    waiting.bound(cluster.api, "low")
    cluster.api.create(PODS, objects.pod("high", SHARE, priorityClassName="high"))
    asked = extender.wait_for("/preempt")[0]
    recordings.keep(f"extender-preempt-{'names' if cached else 'nodes'}", asked.body)
    if cached:
        assert asked.body["NodeNameToVictims"] is None
        victims = asked.body["NodeNameToMetaVictims"]["a"]["Pods"]
        assert victims == [{"UID": low["metadata"]["uid"]}]
    else:
        victims = asked.body["NodeNameToVictims"]["a"]["Pods"]
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

    one = {**CARD, "nvidia.com/gpumem": 3000}
    cluster, _ = scheduling({"/preempt": preempt}, nodes={"a": one})
    priority_class(cluster, "high", 1000)
    priority_class(cluster, "higher", 2000)
    higher = objects.pod("higher", {"cpu": 1}, priorityClassName="higher")
    added.append(cluster.api.create(PODS, higher)["metadata"]["uid"])
    cluster.api.create(PODS, objects.pod("low", SHARE))
    for name in ("higher", "low"):
        waiting.bound(cluster.api, name)
    cluster.api.create(PODS, objects.pod("high", SHARE, priorityClassName="high"))
    waiting.gone(cluster.api, f"{PODS}/low")
    waiting.gone(cluster.api, f"{PODS}/higher")
