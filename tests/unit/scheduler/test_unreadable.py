"""Unreadable objects: the view of a cluster treats them as the scheduler does, and reports them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hami_py._native import Allocator
from hami_py.cli import hami
from hami_py.cli.kubernetes import queries
from hami_py.cluster.explanation import LeftOut
from hami_py.cluster.state import NODES, PODS, QUOTAS, Cluster
from hami_py.cluster.view import ClusterView
from hami_py.kube import Followed, list_objects
from hami_py.kube.follower import Follower
from hami_py.model import pods
from hami_py.model.pods import objects, wire
from support.extender_calls import filtered
from unit.pods import build
from unit.scheduler.small import Small

Object = dict[str, Any]

ASSIGNMENT = pods.annotations.ASSIGNMENT
NAMELESS = 3


class Server:
    """Lists, two objects to a page."""

    def __init__(self, **lists: list[Object]) -> None:
        self.lists = lists

    def get(self, path: str, query: Mapping[str, str] | None = None, *, deadline_s: float) -> bytes:
        *_, kind, name = path.split("/")
        if name not in self.lists:
            named = (item for item in self.lists[kind] if item["metadata"] != NAMELESS)
            (found,) = (item for item in named if item["metadata"]["name"] == name)
            return json.dumps(found).encode()
        begin = int((query or {}).get("continue") or 0)
        rest = str(begin + 2) if begin + 2 < len(self.lists[name]) else ""
        items = self.lists[name][begin : begin + 2]
        metadata = {"resourceVersion": "1", "continue": rest}
        return json.dumps({"kind": "List", "metadata": metadata, "items": items}).encode()


def node(name: str, written: str | None = None) -> Object:
    """With one card of 10,000 MiB, or with what is written of its cards."""
    card = wire.Card(f"GPU-{name}", 0, "NVIDIA A100-SXM4-80GB", 10_000)
    cards = pods.encode_cards((card,)) if written is None else written
    annotations = {pods.annotations.CARDS: cards} if cards else {}
    return {"metadata": {"name": name, "annotations": annotations}}


def pod(name: str, **fields: Any) -> Object:
    metadata = {"name": name, "uid": f"uid-{name}"}
    return build.manifest(build.container(limits={"gpumem": 6000}), metadata=metadata, **fields)


def bound(name: str, where: str) -> Object:
    share = wire.CardAllocation(f"GPU-{where}", 6000, 0)
    assignment = wire.Assignment(1, f"uid-{name}", where, {"train": (share,)})
    written = {ASSIGNMENT: pods.encode_assignment(assignment)}
    return pod(name, annotations=written, nodeName=where)


def strange(made: Object) -> Object:
    """The same, of a Kubernetes in which a priority is a word."""
    return {**made, "spec": {**made["spec"], "priority": "high"}}


def server() -> Server:
    """Nodes of every kind. The pods on b, and one more pod and quota, cannot be decoded."""
    gone = node("gone")
    gone["metadata"]["labels"] = 3
    barred = pod("secret", annotations={ASSIGNMENT: "{"}, nodeName="c")
    quota = {"metadata": {"name": "q", "namespace": "closed"}, "spec": {"hard": 3}}
    return Server(
        nodes=[node("a"), node("b"), node("c"), node("broken", "{"), node("plain", ""), gone],
        pods=[
            pod("p"),
            bound("known", "a"),
            strange(bound("later", "b")),
            strange(pod("idle")),
            barred,
            {"metadata": NAMELESS},
            pod("held", schedulingGates=[{"name": "example.com/a"}, {"name": "b"}]),
        ],
        resourcequotas=[quota],
    )


def followed(there: Server) -> Cluster:
    """The state of a scheduler that has just started, read by the reflectors."""
    cluster = Cluster(Allocator(), pods.PodSettings())
    for path, kind, sink in (
        (NODES, objects.Node, cluster.nodes),
        (PODS, objects.Pod, cluster.pods),
        (QUOTAS, objects.ResourceQuota, cluster.quotas),
    ):
        follower: Follower[Any] = Follower(Followed(there, path, kind, sink), page=2)  # type: ignore[arg-type]
        for _ in follower.pages():
            pass
    return cluster


def read(there: Server) -> ClusterView:
    return ClusterView.read(there)  # type: ignore[arg-type]


def test_a_list_includes_objects_that_cannot_be_decoded() -> None:
    found, undecoded = list_objects(server(), PODS, objects.Pod)  # type: ignore[arg-type]
    assert [pod.metadata.name for pod in found] == ["p", "known", "secret", "held"]
    assert [item.name for item in undecoded] == ["ml/later", "ml/idle"]
    assert all("$.spec.priority" in item.why for item in undecoded)


def test_the_view_has_the_same_state_as_the_scheduler() -> None:
    there = server()
    view, cluster = read(there), followed(there)
    assert view.digest() == cluster.allocator.digest()
    # A quota that cannot be decoded allows nothing in its namespace.
    for namespace, where in (("ml", ["a"]), ("closed", [])):
        metadata = {"name": "small", "namespace": namespace}
        small = build.pod(build.container(limits={"gpumem": 1000}), metadata=metadata)
        assert [each.node for each in view.explain(small) if each.fits] == where


def test_it_reports_unreadable_objects() -> None:
    assert [(item.kind, item.name) for item in read(server()).left_out] == [
        ("node", "gone"),
        ("resourcequota", "closed/q"),
        ("pod", "ml/later"),
        ("pod", "ml/idle"),
    ]


def test_each_node_is_explained_or_counted() -> None:
    view = read(server())
    told = {each.node: each for each in view.explain(build.read(pod("p")))}
    assert not any(each.fits for each in told.values())
    why = {name: each.reason or "" for name, each in told.items()}
    assert why.keys() == {"a", "b", "c", "broken", "gone"}
    assert "free 4000" in why["a"]
    assert why["b"].startswith("pod ml/later has cards there and cannot be decoded: ")
    assert why["c"].startswith("pod ml/secret has cards there, and its assignment is invalid: ")
    assert why["broken"].startswith("its cards are invalid: metadata.annotations[hami.io/cards]")
    assert why["gone"].startswith("the node cannot be decoded: ")
    for name in ("b", "c", "broken", "gone"):
        assert told[name].unresolvable
        assert told[name].cards == ()
    assert view.without_cards() == ("plain",)
    (outcome,) = view.what_if([build.read(pod("p"))])
    assert {name: outcome.reasons[name] for name in ("b", "c", "broken", "gone")} == {
        name: why[name] for name in ("b", "c", "broken", "gone")
    }


def test_an_unreadable_node_still_has_its_reasons() -> None:
    broken = {**node("broken", "{"), "spec": {"unschedulable": True}}
    (told,) = read(Server(nodes=[broken], pods=[], resourcequotas=[])).explain(build.read(pod("p")))
    assert told.reason is not None
    assert told.reason.startswith("the node is cordoned; its cards are invalid: ")


def test_a_readable_node_is_usable_again() -> None:
    there = server()
    cluster = followed(there)
    assert cluster.nodes.blocked().keys() == {"b", "c", "broken", "gone"}
    cluster.nodes.changed(pods.decode_node.convert(node("broken")))
    cluster.pods.deleted(build.read(pod("later")))
    cluster.nodes.deleted(list_objects(there, NODES, objects.Node)[1][0])  # type: ignore[arg-type]
    assert cluster.nodes.blocked().keys() == {"c"}
    cluster.nodes.changed(pods.decode_node.convert(node("broken", "{")))
    assert cluster.nodes.blocked().keys() == {"broken", "c"}
    cluster.nodes.replace([])
    cluster.pods.replace([])
    assert cluster.nodes.blocked() == {}


@pytest.mark.parametrize(
    ("written", "brief"),
    [
        ("{", "its cards cannot be read"),
        ('{"version":2}', "its cards were published by another version"),
        (None, "no cards are registered"),
    ],
)
def test_the_reason_of_a_pod_says_why_the_cards_of_a_node_are_not_known(
    written: str | None, brief: str
) -> None:
    """Each was "no cards are registered", and only the log had the true reason."""
    small = Small("b").listed()
    small.create("p")
    small.cluster.nodes.changed(pods.decode_node.convert(node("b", written or "")))
    found = filtered(small.verbs, small.seen("p"), ["b"])
    assert found.failed_and_unresolvable_nodes == {"b": brief}
    small.cluster.nodes.changed(pods.decode_node.convert(node("b")))
    assert small.fits("p", "b") == ["b"]


@pytest.mark.parametrize(
    ("written", "brief"),
    [
        ("{", "the cards of a pod there cannot be read"),
        ('{"version":2}', "the cards of a pod there were assigned by another version"),
    ],
)
def test_the_reason_of_a_pod_says_that_a_pod_blocks_a_node(written: str, brief: str) -> None:
    small = Small("a").listed()
    small.create("blocks", annotations={ASSIGNMENT: written})
    small.server.pods["blocks"]["spec"]["nodeName"] = "a"
    small.told("blocks")
    small.create("p")
    found = filtered(small.verbs, small.seen("p"), ["a", "none"])
    reasons = {"a": brief, "none": "no cards are registered"}
    assert found.failed_and_unresolvable_nodes == reasons
    small.cluster.pods.deleted(small.seen("blocks"))
    assert small.fits("p", "a") == ["a"]


def test_an_assignment_of_a_newer_release_does_not_block_its_node() -> None:
    small = Small("a").listed()
    small.create("newer", 4000)
    share = wire.CardAllocation("GPU-a-0", 4000, 0)
    small.bound_elsewhere("newer", "a", share)
    written = small.server.pods["newer"]["metadata"]["annotations"]
    written[ASSIGNMENT] = json.dumps({**json.loads(written[ASSIGNMENT]), "more": 1})
    small.told("newer")
    for mib, where in ((6000, ["a"]), (7000, [])):
        small.create("p", mib)
        assert small.fits("p", "a") == where


def asked(monkeypatch: pytest.MonkeyPatch, *arguments: str, there: Server | None = None) -> Result:
    there = there or server()
    monkeypatch.setattr(queries, "connect", lambda *_: there)
    done = CliRunner().invoke(hami, arguments)
    assert done.exception is None, done.exception
    return done


def test_explain_shows_a_summary_of_a_large_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """It showed each card of each node: thousands of lines."""
    names = [f"n{number:02}" for number in range(30)]
    there = Server(nodes=[node(name) for name in names], pods=[pod("p")], resourcequotas=[])
    command = ["explain", "pod", "p", "-n", "ml"]
    short = asked(monkeypatch, *command, there=there).stdout.splitlines()
    assert [line.split()[0] for line in short if line.startswith("n") and " yes " in line] == (
        names[:20]
    )
    assert "not shown without --all: 10 nodes, 30 cards" in short
    assert not any("GPU-" in line for line in short)
    whole = asked(monkeypatch, *command, "--all", there=there).stdout.splitlines()
    assert [line.split()[0] for line in whole if " yes " in line] == names
    assert sum("GPU-" in line for line in whole) == 30
    assert not any("--all" in line for line in whole)


def test_explain_shows_a_card_that_another_node_reports_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = node("a")["metadata"]["annotations"][pods.annotations.CARDS]
    there = Server(nodes=[node("a"), node("b", written)], pods=[pod("p")], resourcequotas=[])
    lines = asked(monkeypatch, "explain", "pod", "p", "-n", "ml", there=there).stdout
    assert "node b reports this card, too" in lines


def said(done: Result) -> list[str]:
    return [line for line in done.stderr.splitlines() if line.startswith("hami: left out: ")]


def test_the_commands_report_unreadable_objects(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    manifest = tmp_path / "pod.json"
    manifest.write_text(json.dumps(pod("new")))
    left_out = read(server()).left_out
    for command in (
        ["explain", "pod", "p", "-n", "ml"],
        ["what-if", str(manifest)],
        ["snapshot"],
    ):
        lines = said(asked(monkeypatch, *command))
        assert [line.split()[3:5] for line in lines] == [[o.kind, o.name] for o in left_out]
        if command != ["snapshot"]:
            done = asked(monkeypatch, *command, "--json")
            told = json.loads(done.stdout)["left_out"]
            assert [LeftOut(**item) for item in told] == list(left_out)
            assert said(done) == lines


def test_explain_shows_nodes_without_cards_and_scheduling_gates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = ["explain", "pod", "held", "-n", "ml"]
    told = asked(monkeypatch, *held).stdout
    assert "while it has these scheduling gates: example.com/a, b\n" in told
    assert "nodes without cards, not shown: 1\n" in told
    answer = json.loads(asked(monkeypatch, *held, "--json").stdout)
    assert answer["gates"] == ["example.com/a", "b"]
    assert answer["without_cards"] == ["plain"]
    assert {each["node"] for each in answer["nodes"]} == {"a", "b", "c", "broken", "gone"}
    free = asked(monkeypatch, "explain", "pod", "p", "-n", "ml")
    assert "gates" not in free.stdout


def test_explain_shows_the_pod_s_cards_and_counts_without_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limited = bound("limited", "b")
    share = wire.CardAllocation("GPU-b", 6000, 30)
    written = pods.encode_assignment(wire.Assignment(1, "uid-limited", "b", {"train": (share,)}))
    limited["metadata"]["annotations"] = {ASSIGNMENT: written, "hami.io/share-mode": "soft"}
    lists = {"pods": [bound("free", "a"), limited, pod("waits")], "resourcequotas": []}
    there = Server(nodes=[node("a"), node("b")], **lists)
    without = "the cards of this pod count as free below"
    for name, has in (
        ("free", "train has GPU-a on a: 6000 MiB, no limit on its time"),
        ("limited", "train has GPU-b on b: 6000 MiB, 30 percent of its time (soft)"),
    ):
        command = ["explain", "pod", name, "-n", "ml", "--all"]
        lines = asked(monkeypatch, *command, there=there).stdout
        on = has.split()[4].rstrip(":")
        enforced = (
            f"by what {on} offers now, memory is enforced by preload and time by lease, because "
        )
        first, second, third, *_ = lines.splitlines()
        assert (first, third) == (has, without)
        assert second.startswith(enforced)
        assert f"{on} card 0 GPU-{on}: 10000 MiB, 100 percent, " in lines
        assert "SCORE/100" in lines
    assert (
        without not in asked(monkeypatch, "explain", "pod", "waits", "-n", "ml", there=there).stdout
    )
