"""Why a pod waits: one reason, the same as `explain` has."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from click.testing import CliRunner

from hami_py.cli import hami
from hami_py.cli.kubernetes import queries
from hami_py.kube import ApiServer
from hami_py.model.pods import PodSettings
from hami_py.overview import Reader, Scope
from unit.overview.fake_cluster import FakeCluster, on

MESSAGE = "0/2 nodes are available: 2 Insufficient cpu"

_CONDITION = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": f"{MESSAGE}. preemption: not helpful",
}
UNSCHEDULABLE = {"phase": "Pending", "conditions": [_CONDITION]}


@pytest.fixture
def cluster() -> FakeCluster:
    """Two nodes, and a pod that has all of the first one's card."""
    cluster = FakeCluster()
    cluster.add_node("a", labels={"zone": "x"})
    cluster.add_node("b", labels={"zone": "y"})
    cluster.add_pod("large", on("GPU-a-0", 40 * 1024, 100), node="a", mib=40 * 1024)
    return cluster


def reason(cluster: FakeCluster) -> str:
    (waiting,) = cluster.overview().waiting
    return str(waiting)


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        ({"mib": 41 * 1024}, "never fits: its cards have less memory than requested (2/2 nodes)"),
        (
            {"schedulingGates": [{"name": "example.com/g"}]},
            "it has scheduling gates: example.com/g",
        ),
        ({"nodeSelector": {"zone": "z"}}, "nodeSelector requires zone=z (2/2 nodes)"),
        ({"status": UNSCHEDULABLE}, MESSAGE),
        ({}, "no scheduler has tried it yet"),
    ],
    ids=["memory", "gates", "selector", "fits", "new"],
)
def test_the_reason_of_a_pod_that_is_not_bound(
    cluster: FakeCluster, pod: dict[str, Any], why: str
) -> None:
    cluster.add_pod("waits", **pod)
    assert why in reason(cluster)


def test_most_nodes_have_the_reason(cluster: FakeCluster) -> None:
    cluster.add_node("c")
    cluster.add_pod("more", on("GPU-b-0", 40 * 1024, 100), node="b", mib=40 * 1024)
    cluster.lists["/api/v1/nodes"][2]["spec"] = {"unschedulable": True}
    cluster.add_pod("waits")
    assert reason(cluster) == "too little memory free on its cards (2/3 nodes)"


def test_nodes_that_the_pod_selects_have_the_reason(cluster: FakeCluster) -> None:
    cluster.add_node("c", labels={"zone": "y"})
    cluster.add_pod("waits", nodeSelector={"zone": "x"})
    assert reason(cluster) == "too little memory free on its cards (1/3 nodes)"


def test_a_closed_node_that_the_pod_selects_has_the_reason(cluster: FakeCluster) -> None:
    cluster.lists["/api/v1/nodes"][1]["spec"] = {"unschedulable": True}
    cluster.add_node("c", labels={"zone": "x"})
    cluster.add_pod("waits", nodeSelector={"zone": "y"})
    assert reason(cluster) == "the node is cordoned (1/3 nodes)"


def test_a_pod_of_another_scheduler_says_so(cluster: FakeCluster) -> None:
    cluster.add_pod("waits", schedulerName="default-scheduler")
    settings = PodSettings(schedulers=("hami-scheduler",))
    reader = Reader(cast(ApiServer, cluster), Scope(own="team"), settings)
    (waiting,) = reader.read().waiting
    assert waiting.reason == "its scheduler is default-scheduler, which does not assign cards"


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ({"reason": "ContainerCreating"}, "its containers are being created"),
        ({"reason": "ImagePullBackOff", "message": "no such\nimage"}, 'ImagePullBackOff: "no such'),
        (
            {"reason": "CreateContainerConfigError", "message": "card GPU-a-0 is unhealthy"},
            "CreateContainerConfigError: card GPU-a-0 is unhealthy",
        ),
    ],
)
def test_the_reason_of_a_bound_pod_is_its_containers(
    cluster: FakeCluster, state: dict[str, str], why: str
) -> None:
    status = {"phase": "Pending", "containerStatuses": [{"name": "m", "state": {"waiting": state}}]}
    cluster.add_pod("waits", on("GPU-b-0"), node="b", status=status)
    assert reason(cluster).startswith(why)


def test_without_nodes_the_reason_is_kube_schedulers(cluster: FakeCluster) -> None:
    cluster.add_pod("waits", mib=41 * 1024, status=UNSCHEDULABLE)
    cluster.forbidden = lambda path: path == "/api/v1/nodes"
    assert reason(cluster) == MESSAGE


@pytest.mark.parametrize("mib", [41 * 1024, 1024], ids=["never fits", "fits"])
def test_explain_has_the_same_reason(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, mib: int
) -> None:
    cluster.add_pod("waits", mib=mib, status=UNSCHEDULABLE)
    one = "/api/v1/namespaces/team/pods/waits"
    get = cluster.get

    def read(path: str, query: dict[str, str] | None = None, *, deadline_s: float) -> bytes:
        if path == one:
            return json.dumps(cluster.lists["/api/v1/pods"][-1]).encode()
        return get(path, query, deadline_s=deadline_s)

    monkeypatch.setattr(cluster, "get", read)
    monkeypatch.setattr(queries, "connect", lambda *_: cluster)
    command = ["explain", "pod", "waits", "-n", "team"]
    said = CliRunner().invoke(hami, command, catch_exceptions=False).output
    assert f"pod team/waits waits for a node: {reason(cluster)}\n" in said
