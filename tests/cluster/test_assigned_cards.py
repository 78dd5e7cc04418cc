"""A container runs on its assigned card, also if the node agent hears of the pod late.

The agent cannot tell the kubelet which devices to pick then, and the kubelet picks those of other
cards. The pods allow only some cards, each in its own way; the driver's ledger says which card a
program has used.
"""

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from cluster import card_owners, crowd, objects, waiting
from cluster.api import Object
from cluster.conftest import StartWhole
from cluster.crowd import Size
from cluster.deployed import create_soon
from cluster.limited_pods import install
from cluster.objects import NODES, PODS
from cluster.whole import WholeCluster

pytestmark = [pytest.mark.programs("controllers", "kubectl", "node"), pytest.mark.timeout(600)]

CARDS = ("a100", "a100", "h100", "a100-80", "t4", "l40s")

#: All of a card's time, and less than the memory of a T4.
WHOLE = Size(12288, 100)


#: How many pods need a card without others.
ALONE = 2


@pytest.fixture(scope="module")
def cluster(whole_cluster: StartWhole) -> WholeCluster:
    """A cluster with hami and cards of five models; one card is cordoned."""
    cluster = whole_cluster(cards=",".join(CARDS))
    cordon = {"metadata": {"annotations": {"hami.io/cordon": cluster.gpu.uuids()[0]}}}
    cluster.api.patch(f"{NODES}/{cluster.node.name}", cordon)
    install(cluster)
    return cluster


@contextmanager
def hears_nothing(cluster: WholeCluster) -> Iterator[None]:
    """The agent gets no packet of the API server; its sockets to the kubelet work."""
    pods = cluster.api.list("/api/v1/namespaces/hami-system/pods")
    (agent,) = [each for each in pods if each["metadata"]["name"].startswith("hami-node-")]
    address = f"{agent['status']['podIP']}/32"
    shown = subprocess.run(
        ["ip", "route", "show", address], check=True, capture_output=True, text=True
    ).stdout.split()
    subprocess.run(["ip", "route", "replace", "blackhole", address], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "route", "del", "blackhole", address], check=True)
        subprocess.run(["ip", "route", "replace", *shown], check=True)


def pods(uuids: list[str]) -> Iterator[tuple[Object, set[int]]]:
    """Pods, each with the indices of the cards that it allows."""
    only_two = {
        "hami.io/gpu-scheduler-policy": "mutex",
        "nvidia.com/nouse-gpuuuid": ",".join(uuids[2:4]),
    }
    # The first ``ALONE`` need a card without others.
    kinds: Mapping[str, tuple[Size, dict[str, str], set[int]]] = {
        "whole": (WHOLE, {"nvidia.com/use-gputype": "T4"}, {4}),
        "mutex": (Size(1024, 5), only_two, {1, 5}),
        "uuid": (Size(1024, 5), {"nvidia.com/use-gpuuuid": uuids[3]}, {3}),
        "type": (Size(1024, 5), {"nvidia.com/use-gputype": "H100"}, {2}),
        "cordon": (Size(1024, 5), {}, {1, 2, 3, 4, 5}),
    }
    for name, (size, annotations, allowed) in kinds.items():
        for number in range(1 if name in ("whole", "mutex") else 5):
            pod = objects.pod(
                f"{name}-{number}",
                containers=[crowd.container("main", "fill", crowd.limits(size))],
                restartPolicy="Never",
                terminationGracePeriodSeconds=0,
            )
            pod["metadata"]["annotations"] = annotations
            yield pod, allowed


def bound(cluster: WholeCluster, count: int) -> Callable[[], bool]:
    return lambda: sum("nodeName" in pod["spec"] for pod in cluster.api.list(PODS)) == count


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(0, marks=pytest.mark.tier("torture")),
        3,
        pytest.param(30, marks=pytest.mark.tier("torture")),
    ],
)
def test_a_pod_runs_on_a_card_that_it_allows(cluster: WholeCluster, seconds: int) -> None:
    """Also where the scheduler hears nothing for a while. Takes long for a whole wave of pods."""
    uuids = cluster.gpu.uuids()
    wanted = list(pods(uuids))
    try:
        if seconds:
            with hears_nothing(cluster):
                create(cluster, wanted)
                time.sleep(seconds)
        else:
            create(cluster, wanted)
        found = crowd.all_running(cluster, len(wanted))
        card_owners.check_agreement(cluster, found)
        held = card_owners.held(cluster.gpu)
        allowed = {pod["metadata"]["name"]: cards for pod, cards in wanted}
        for pod in found:
            name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
            (card,) = held[card_owners.Container(uid, "main")]
            assert uuids.index(card) in allowed[name], f"{name} runs on {card}"
        if seconds:
            assert others(cluster), "the kubelet has picked the assigned cards by itself"
    finally:
        cluster.api.request("DELETE", PODS, {"gracePeriodSeconds": 0})
        waiting.until(lambda: not cluster.api.list(PODS), "all pods are deleted")


def create(cluster: WholeCluster, wanted: list[tuple[Object, Any]]) -> None:
    for number, (pod, _) in enumerate(wanted, 1):
        create_soon(cluster.control_plane, pod)
        if number == ALONE:
            waiting.until(
                bound(cluster, number), "the pods that are alone on their cards are bound"
            )
    waiting.until(bound(cluster, len(wanted)), "all pods are bound")


def others(cluster: WholeCluster) -> int:
    """How many containers have device IDs of other cards than their own."""
    allocated = card_owners.ledger(cluster.node)
    return sum(
        cards != sorted(allocated[container])
        for container, cards in card_owners.recorded(cluster.node).items()
        if container in allocated
    )
