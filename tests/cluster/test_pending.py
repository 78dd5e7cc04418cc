"""Pods that wait, each for another reason: `inspect` and `explain` name the same, true one.

kube-scheduler's own verdict is the oracle where it has one: the condition of the pod.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import click
import pytest
from click.testing import CliRunner

from cluster import waiting
from cluster.api import Object
from cluster.conftest import StartControlPlane
from cluster.extended import card, extended, node
from cluster.objects import QUOTAS
from cluster.placing import USE, Placing, asks
from hami_py.cli import hami, kubectl_hami
from hami_py.model import pods
from hami_py.model.pods import wire
from hami_py.overview import WaitingPod

HOST = "kubernetes.io/hostname"


@dataclass(frozen=True)
class Case:
    """A pod that waits.

    Attributes:
        reason: what is shown, with the number of nodes.
        at: the node that it selects; None: it selects none.
        asked: the limits of its container.
        said: part of kube-scheduler's message, if it is not the reason; None: it has not tried the
            pod.
        annotations: of the pod.
        spec: more fields of it.
    """

    reason: str
    at: str | None = None
    asked: Mapping[str, object] = field(default_factory=lambda: asks(1000))
    said: str | None = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)


#: What kube-scheduler says of the node's resources, which it checks before it asks the extender.
MEMORY, CORES = "Insufficient nvidia.com/gpumem", "Insufficient nvidia.com/gpucores"

CASES = {
    "memory": Case("too little memory free on its cards", "busy", asks(5000)),
    "cores": Case("too few cores free on its cards", "busy", asks(1000, cores=60)),
    "no-cores": Case("all cores of its cards allocated", "spent"),
    "slots": Case("no slot left on its cards", "one-slot", said="Insufficient nvidia.com/gpu"),
    "never-memory": Case(
        "never fits: its cards have less memory than requested", "busy", asks(20_000), MEMORY
    ),
    "never-cards": Case(
        "never fits: more cards are requested than it has", "busy", asks(1000, cards=3)
    ),
    "type": Case(
        "never fits: its cards are of another type",
        "busy",
        annotations={"nvidia.com/use-gputype": "H100"},
    ),
    "uuid": Case("never fits: its cards are excluded by UUID", "busy", annotations={USE: "GPU-x"}),
    "mode": Case(
        "it has another mode (full) than the pod requests",
        "busy",
        annotations={"nvidia.com/vgpu-mode": "mps"},
    ),
    "no-mig": Case(
        "its cards are not in MIG mode", "busy", annotations={"nvidia.com/vgpu-mode": "mig"}
    ),
    "isolation": Case(
        "its cards have weaker isolation than requested",
        "busy",
        annotations={"hami.io/isolation": "kernel"},
    ),
    "cordoned-card": Case("its cards are cordoned", "cordoned-card"),
    "unhealthy": Case("its cards are unhealthy", "sick"),
    "unreadable": Case("its cards are invalid", "garbled", said="its cards cannot be read"),
    "quota": Case(
        "quota gpus of namespace default allows 35000 MiB", "spent", asks(21_500), MEMORY
    ),
    "cordoned": Case("the node is cordoned", "closed", said="1 node(s) were unschedulable"),
    "taint": Case("taint team=a:NoSchedule is not tolerated", "tainted", said="untolerated taint"),
    "selector": Case(
        f"nodeSelector requires {HOST}=nowhere", "nowhere", said="didn't match Pod's node affinity"
    ),
    "gates": Case(
        "it has scheduling gates: example.com/wait",
        said=None,
        spec={"schedulingGates": [{"name": "example.com/wait"}]},
    ),
    "processors": Case("1 Insufficient cpu", "busy", asks(1000) | {"cpu": "1000"}),
    "volume": Case(
        'persistentvolumeclaim "absent" not found',
        "busy",
        spec={"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "absent"}}]},
    ),
    "pods": Case(
        "didn't match pod affinity rules",
        "busy",
        spec={
            "affinity": {
                "podAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": HOST}
                    ]
                }
            }
        },
    ),
}


def made(name: str, *cards: wire.Card, **spec: Any) -> Object:
    one = node(name, cards)
    one["metadata"]["labels"] = {HOST: name}
    one["spec"] = spec
    return one


@pytest.fixture
def placing(control_plane: StartControlPlane) -> Iterator[Placing]:
    """Nodes of which each has its own reason, and the pods that fill them."""
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    with extended(control_plane) as (cluster, scheduler):
        placing = Placing(cluster, scheduler)
        placing.add(
            made("busy", card("busy", 0), card("busy", 1)),
            made("spent", card("spent", 0)),
            made("one-slot", card("one-slot", 0, slots=1)),
            made("cordoned-card", card("cordoned-card", 0)),
            made("sick", card("sick", 0, healthy=False)),
            made("garbled", card("garbled", 0)),
            made("closed", card("closed", 0), unschedulable=True),
            made("tainted", card("tainted", 0), taints=[taint]),
        )
        for index in range(2):
            placing.fill(f"GPU-busy-{index}", asks(6000, cores=50))
        placing.fill("GPU-spent-0", asks(1000, cores=100))
        placing.fill("GPU-one-slot-0", asks(1000))
        for name, key, value in (
            ("cordoned-card", "hami.io/cordon", "GPU-cordoned-card-0"),
            ("garbled", "hami.io/cards", "{"),
        ):
            placing.write(name, {"metadata": {"annotations": {key: value}}})
        hard = {"limits.nvidia.com/gpumem": 35_000}
        placing.api.create(QUOTAS, {"metadata": {"name": "gpus"}, "spec": {"hard": hard}})
        placing.sync_extender()
        yield placing


def test_pods_that_wait_have_their_true_reasons(placing: Placing) -> None:
    assert len(CASES) == 22
    for name, case in CASES.items():
        spec = {**case.spec, **({"nodeSelector": {HOST: case.at}} if case.at else {})}
        # The webhook's label, by which pods with cards are listed.
        placing.create(name, case.asked, case.annotations, labels=pods.annotations.LABELS, **spec)
    for name, case in CASES.items():
        if case.said is not None:
            waiting.unschedulable(placing.api, name, case.said or case.reason)

    there = ["--kubeconfig", str(placing.cluster.kubeconfig)]

    def run(command: click.Command, *arguments: str) -> str:
        done = CliRunner().invoke(command, [*arguments, *there], catch_exceptions=False)
        return done.stdout

    shown = {
        row["pod"]: WaitingPod(**row)
        for row in json.loads(run(kubectl_hami, "inspect", "-o", "json"))["waiting"]
        if row["node"] is None
    }
    assert shown.keys() == CASES.keys()
    for name, case in CASES.items():
        assert case.reason in shown[name].reason
        first, *_ = run(hami, "explain", "pod", name).splitlines()
        assert first == f"pod default/{name} waits for a node: {shown[name]}"
