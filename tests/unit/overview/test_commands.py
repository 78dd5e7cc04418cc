"""The tables of ``kubectl hami``: what their users know, and kubectl's options."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from hami_py.cli import kubectl_hami
from hami_py.cli.kubernetes import cordoning, overview
from support.slice_uses import container
from unit.overview.fake_cluster import GIB, FakeCluster, figures, on


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Two nodes, one of them with two cards; two pods run and one waits."""
    cluster = FakeCluster()
    cluster.add_node("gpu-a")
    cluster.add_node("gpu-b", cards=2)
    cluster.add_pod("small", on("GPU-gpu-a-0", 1536, 30), node="gpu-a", mib=1536)
    cluster.add_pod("big", on("GPU-gpu-a-0", 8192), node="gpu-a", namespace="others")
    cluster.add_pod("waits", mib=50_000)
    names = ("team", "small", "main", "GPU-gpu-a-0"), ("others", "big", "main", "GPU-gpu-a-0")
    small = container(*names[0], limit=3 * GIB // 2, share=30, memory_used=GIB, refusals=1)
    big = container(*names[1], limit=8 * GIB, memory_used=7 * GIB, throttled=70.0)
    cluster.figures = {
        "gpu-a": figures("gpu-a", small, big, used=9 * GIB),
        "gpu-b": figures("gpu-b"),
    }
    monkeypatch.setattr(overview, "connect", lambda *_: cluster)
    return cluster


def said(*arguments: str) -> str:
    return CliRunner().invoke(kubectl_hami, arguments, catch_exceptions=False).stdout


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_the_table_is_that_of_kubectl_inspect_cgpu(cluster: FakeCluster) -> None:
    head, first, second, dashes, totals, *waiting = said("inspect").splitlines()
    assert head.split()[:5] == [
        "NAME",
        "IPADDRESS",
        "GPU0(Used/Allocated/Total)",
        "GPU1(Used/Allocated/Total)",
        "CORES%",
    ]
    assert head.endswith("GPU Memory(GiB)")
    assert first.split() == ["gpu-a", "10.0.0.1", "9/9.5/40", "30", "full", "preload", "9.5/40"]
    assert second.split()[2:4] == ["0/0/40", "-/0/40"]
    assert set(dashes) == {"-"}
    assert totals == "Allocated/Total GPU Memory In Cluster: 9.5/120 (8%)   Used: 9 (8%)"
    assert waiting == [
        "Pending: 1 pod (top reason: never fits: its cards have less memory than requested)",
        "NAMESPACE  NAME   REASON",
        "team       waits  never fits: its cards have less memory than requested (2/2 nodes)",
    ]


def test_details_have_the_pods_of_each_node(cluster: FakeCluster) -> None:
    rows = cells(said("inspect", "-d"))
    assert ["NAME:", "gpu-a"] in rows
    assert ["NAME", "NAMESPACE", "GPU0(Used/Allocated)", "LEVEL"] in rows
    assert ["small", "team", "1/1.5", "preload/lease"] in rows
    assert ["big", "others", "7/8", "preload/lease"] in rows
    said_why = ["preload/lease:", "memory", "by", "preload,", "time", "by", "lease"]
    assert rows.count(said_why) == 1, "once for all pods"
    assert ["Allocated", ":", "9.5", "(24%)"] in rows


@pytest.mark.parametrize(
    ("order", "first"),
    [("name", "big"), ("used", "big"), ("refusals", "small"), ("throttled", "big")],
)
def test_pods_are_sorted(cluster: FakeCluster, order: str, first: str) -> None:
    _, *rows = cells(said("top", "pod", "-A", "--sort-by", order))
    assert [rows[0][1], len(rows)] == [first, 2]


def test_the_row_of_a_node_has_the_sums_of_its_cards(cluster: FakeCluster) -> None:
    head, *rows = cells(said("top", "node", "--sort-by", "containers"))
    assert head[:5] == ["NAME", "GPUS", "USED(GiB)", "ALLOCATED(GiB)", "TOTAL(GiB)"]
    assert rows == [
        ["gpu-a", "1", "9", "9.5", "40", "-", "30", "2", "full", "preload"],
        ["gpu-b", "2", "-", "0", "80", "-", "0", "0", "full", "preload"],
    ]


def test_top_pod_has_the_own_namespace_as_kubectl(cluster: FakeCluster) -> None:
    assert [row[1] for row in cells(said("top", "pod"))] == ["NAME", "small"]
    assert [row[1] for row in cells(said("top", "pod", "-n", "others"))] == ["NAME", "big"]


@pytest.mark.parametrize("command", [("top", "pod"), ("top", "node"), ("quota",)], ids=" ".join)
def test_each_amount_has_its_unit_in_its_heading(
    cluster: FakeCluster, command: tuple[str, ...]
) -> None:
    head = said(*command).splitlines()[0]
    for name in ("USED", "LIMIT", "PEAK", "ALLOCATED", "TOTAL", "MEMORY", "WASTE"):
        assert not re.search(rf"(?<!GPUS )(?<!LAST ){name}  ", head)
    assert re.search(r"(USED|MEMORY)\(GiB\).*(SHARE|GPU TIME)%", head)


def test_a_namespace_without_node_agents_is_named(cluster: FakeCluster) -> None:
    command = ["inspect", "--system-namespace", "nope"]
    done = CliRunner().invoke(kubectl_hami, command, catch_exceptions=False)
    assert done.stderr == (
        "hami: no node agent runs in namespace nope: name theirs with --system-namespace\n"
    )
    assert "gpu-a" in done.stdout


def test_the_formats_are_the_same(cluster: FakeCluster) -> None:
    as_json = json.loads(said("inspect", "-o", "json"))
    assert as_json == yaml.safe_load(said("inspect", "-o", "yaml"))
    assert as_json["nodes"][0]["cards"][0]["memory_used"] == 9 * GIB
    wide = cells(said("inspect", "-o", "wide"))
    assert ["gpu-b", "1", "GPU-gpu-b-1"] in [row[:3] for row in wide]


def test_a_missing_right_is_said_on_standard_error(cluster: FakeCluster) -> None:
    cluster.forbidden = lambda path: "/proxy/" in path
    done = CliRunner().invoke(kubectl_hami, ["top", "node"], catch_exceptions=False)
    assert done.stderr == (
        'hami: what is used is not shown: User "u" cannot read resource "pods/proxy"\n'
    )
    assert "gpu-a" in done.stdout


def test_quota_shows_what_is_never_used(cluster: FakeCluster) -> None:
    hard = {"limits.nvidia.com/gpumem": "10240"}
    quota = {"metadata": {"name": "q", "namespace": "team"}, "spec": {"hard": hard}}
    cluster.lists["/api/v1/resourcequotas"] = [quota]
    _, others, team = cells(said("quota"))
    assert team == ["team", "q", "1", "-", "1.5", "10", "0", "1.5", "0", "-"]
    assert others[:2] == ["others", "-"]


class Node:
    """An API server with one node, which is written to."""

    def __init__(self, cordon: str) -> None:
        cluster = FakeCluster()
        cluster.add_node("n", cards=3, annotations={"hami.io/cordon": cordon} if cordon else {})
        (self._node,) = cluster.lists["/api/v1/nodes"]
        self.written: Any = None

    def get(self, path: str, *, deadline_s: float) -> bytes:
        assert path == "/api/v1/nodes/n"
        return json.dumps(self._node).encode()

    def patch(self, path: str, body: Any, kind: str, *, deadline_s: float) -> None:
        self.written = body["metadata"]["annotations"]["hami.io/cordon"]


@pytest.mark.parametrize(
    ("before", "command", "after"),
    [
        ("", ["cordon", "n"], "all"),
        ("", ["cordon", "n", "1"], "GPU-n-1"),
        ("GPU-n-1", ["cordon", "n", "GPU-n-0"], "GPU-n-0,GPU-n-1"),
        ("all", ["cordon", "n", "0"], "all"),
        ("all", ["uncordon", "n"], None),
        ("all", ["uncordon", "n", "0"], "GPU-n-1,GPU-n-2"),
        ("GPU-n-1", ["uncordon", "n", "1"], None),
        ("GPU-gone,GPU-n-1", ["uncordon", "n", "1"], "GPU-gone"),
    ],
)
def test_cards_are_cordoned_by_uuid_or_index(
    monkeypatch: pytest.MonkeyPatch, before: str, command: list[str], after: str | None
) -> None:
    node = Node(before)
    monkeypatch.setattr(cordoning, "connect", lambda *_: node)
    said(*command)
    assert node.written == after


def test_an_unknown_card_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node("")
    monkeypatch.setattr(cordoning, "connect", lambda *_: node)
    done = CliRunner().invoke(kubectl_hami, ["cordon", "n", "7"])
    assert "0 (GPU-n-0)" in str(done.exception)
    assert node.written is None
