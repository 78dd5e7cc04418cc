"""``hami explain`` and ``what-if`` beside the real kube-scheduler, on what is no matter of cards.

The oracle is kube-scheduler itself: where it binds pods, or what it writes into the condition of
one that it binds nowhere. Those pods ask for no card, so that it decides alone.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import objects, waiting
from cluster.api import Object
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane
from cluster.extended import card, extended, node
from cluster.kubectl import hami
from cluster.objects import NODES, PODS
from cluster.placing import GPU, MEMORY
from hami_py.cluster.view import ClusterView, find_pod
from hami_py.kube import ApiServer

CORDON = "node.kubernetes.io/unschedulable"

#: The text of kube-scheduler 1.36 for a node, by the first word of ours.
SAYS = {
    "the": "node(s) were unschedulable",
    "taint": "node(s) had untolerated taint(s)",
    "nodeSelector": "node(s) didn't match Pod's node affinity/selector",
    "nodeAffinity": "node(s) didn't match Pod's node affinity/selector",
}

SPECS: dict[str, Object] = {
    "plain": {},
    "cordon": {"unschedulable": True},
    "soft": {"taints": [{"key": "gpu", "effect": "PreferNoSchedule"}], "unschedulable": True},
    "hard": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]},
    "evict": {"taints": [{"key": "down", "effect": "NoExecute"}]},
}
LABELS = {"plain": {"disk": "ssd", "size": "8"}, "hard": {"disk": "hdd", "size": "16"}}


def wants(key: str, operator: str, *values: str) -> Object:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def affinity(*terms: Object) -> Object:
    required = {"nodeSelectorTerms": list(terms)}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    }


def labelled(*requirements: Object) -> Object:
    return {"matchExpressions": list(requirements)}


ALL = [{"operator": "Exists"}]
CASES: dict[str, Object] = {
    "nothing": {},
    "all-taints": {"tolerations": ALL},
    "equal": {"tolerations": [{"key": "gpu", "value": "yes"}], "nodeSelector": {"disk": "hdd"}},
    "other-value": {
        "tolerations": [{"key": "gpu", "value": "no"}],
        "nodeSelector": {"disk": "hdd"},
    },
    "other-effect": {
        "tolerations": [{"key": "down", "operator": "Exists", "effect": "NoSchedule"}],
        "nodeSelector": {"host": "evict"},
    },
    "cordoned": {
        "tolerations": [{"key": CORDON, "operator": "Exists", "effect": "NoSchedule"}],
        "nodeSelector": {"host": "cordon"},
    },
    "selector": {"nodeSelector": {"disk": "tape"}},
    "in": affinity(labelled(wants("disk", "In", "ssd", "hdd"))),
    "not-in": {**affinity(labelled(wants("disk", "NotIn", "ssd", "hdd"))), "tolerations": ALL},
    "exists": {**affinity(labelled(wants("size", "Exists"), wants("disk", "NotIn", "ssd")))},
    "absent": {**affinity(labelled(wants("size", "DoesNotExist"))), "tolerations": ALL},
    "gt": {**affinity(labelled(wants("size", "Gt", "8"))), "tolerations": ALL},
    "lt": {**affinity(labelled(wants("size", "Lt", "16"))), "tolerations": ALL},
    "either": affinity(
        labelled(wants("disk", "In", "tape")),
        {"matchFields": [wants("metadata.name", "In", "plain")]},
    ),
    "not-this-one": affinity({"matchFields": [wants("metadata.name", "NotIn", "plain")]}),
}


@pytest.fixture(scope="module")
def cluster(module_control_plane: StartControlPlane) -> Iterator[ControlPlane]:
    with extended(module_control_plane) as (cluster, _):
        for name, spec in SPECS.items():
            made = node(name, [card(name, 0)])
            made["metadata"]["labels"] = {"host": name, **LABELS.get(name, {})}
            cluster.api.create(NODES, {**made, "spec": spec})
        yield cluster


def verdict(cluster: ControlPlane, name: str) -> tuple[str | None, str]:
    """Where kube-scheduler bound a pod, or why nowhere."""

    def look() -> tuple[str | None, str] | None:
        pod = cluster.api.get(f"{PODS}/{name}")
        if pod["spec"].get("nodeName"):
            return pod["spec"]["nodeName"], ""
        conditions = pod["status"].get("conditions", [])
        said = [each for each in conditions if each["type"] == "PodScheduled"]
        return (None, said[0]["message"]) if said else None

    return waiting.until(look, f"kube-scheduler has looked at {name}")


@pytest.mark.parametrize("case", CASES)
def test_reasons_agree_with_kube_scheduler(cluster: ControlPlane, case: str) -> None:
    """Asks kube-scheduler for each reason: its own filters are what we must agree with."""
    server = ApiServer.connect(cluster.kubeconfig)
    try:
        # No scheduler binds it, so that it can be explained before it is bound.
        idle = objects.pod(f"{case}-idle", {MEMORY: 100}, **CASES[case], schedulerName="nobody")
        cluster.api.create(PODS, idle)
        views = ClusterView.read(server).explain(
            find_pod(server, "default", f"{case}-idle", deadline_s=30)
        )
        assert {view.node for view in views} == set(SPECS)
        fits = {view.node for view in views if view.fits}
        # One pod on each node that it lets them go to, and then none: they keep each other away.
        apart = {"labelSelector": {"matchLabels": {"case": case}}, "topologyKey": "host"}
        spec = dict(CASES[case])
        spec["affinity"] = {
            **spec.get("affinity", {}),
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]},
        }
        taken = set()
        for number in range(len(SPECS)):
            name = f"{case}-{number}"
            labels = {"labels": {"case": case}}
            cluster.api.create(PODS, objects.pod(name, metadata=labels | {"name": name}, **spec))
            where, why = verdict(cluster, name)
            if where is None:
                break
            taken.add(where)
        assert fits == taken
        if not taken:
            # And for the reasons that we name, as often.
            ours = Counter(SAYS[(view.reason or "").split()[0]] for view in views)
            assert all(f"{count} {reason}" in why for reason, count in ours.items()), (ours, why)
    finally:
        server.close()
        cluster.api.delete_all(PODS)


def test_the_commands_show_the_reasons(cluster: ControlPlane, tmp_path: Path) -> None:
    """Runs each command as a user does, for each reason that kube-scheduler itself gives."""
    asked = objects.pod("waits", {GPU: 1, MEMORY: 100}, **CASES["selector"])
    cluster.api.create(PODS, asked)
    why = waiting.unschedulable(cluster.api, "waits")
    there = ("--kubeconfig", cluster.kubeconfig)
    told = hami("explain", "pod", "waits", *there)
    assert told.returncode == 0, told.stderr
    assert f"kube-scheduler's message: {why}" in told.stdout
    assert "the node is cordoned; nodeSelector requires disk=tape" in told.stdout
    summary, *rest = told.stdout.splitlines()
    assert f"nodeSelector requires disk=tape ({len(SPECS)}/{len(SPECS)} nodes)" in summary
    assert "\n".join(rest).count("disk=tape") == len(SPECS)
    cluster.api.delete_all(PODS)

    manifest, snapshot = tmp_path / "pod.json", tmp_path / "state.json"
    manifest.write_text(json.dumps(asked))
    nowhere = hami("what-if", manifest, *there).stdout
    assert "default/waits: nowhere" in nowhere
    assert nowhere.count("disk=tape") == len(SPECS)
    assert "not checked: CPUs" in nowhere
    # A snapshot does not know of it, and says so.
    assert hami("snapshot", "-o", snapshot, *there).returncode == 0
    for command in (("what-if", manifest, "--snapshot", snapshot), ("replay", snapshot, manifest)):
        offline = hami(*command).stdout
        assert "nowhere" not in offline
        assert "checked: cards;" in offline
