"""Pods that kube-scheduler binds late: it has chosen a node, and waits for a volume there.

Only the test provisions volumes in these clusters.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from cluster import failing, waiting
from cluster.api import Api, Object
from cluster.conftest import StartControlPlane
from cluster.extended import CLASSES, card, extended, node, until_known
from cluster.objects import NODES, PODS
from hami_py.kube import ApiServer
from hami_py.scheduler.service import Scheduler
from hami_py.scheduler.settings import Timing

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"

#: kube-scheduler writes this annotation when it has chosen; a provisioner must create the volume
#: for that node.
SELECTED = "volume.kubernetes.io/selected-node"

HOLD_S = 1.0
"""Shorter than usual: what outlives it several times was not held by it."""


@dataclass(frozen=True)
class Stand:
    """A cluster with a claim whose volume is to come."""

    api: Api
    scheduler: Scheduler
    server: ApiServer

    def add(self, *nodes: Object) -> None:
        """Makes nodes, and waits until the extender knows them.

        A pod that came earlier would be refused at first, and that be written when its hold has
        begun: as if kube-scheduler had given up.
        """
        for made in nodes:
            self.api.create(NODES, made)
        until_known(self.server, self.scheduler)


@pytest.fixture
def stand(control_plane: StartControlPlane) -> Iterator[Stand]:
    """Volumes of the class `slow` are created by the test, after a node was chosen."""
    with extended(control_plane, timing=Timing(hold_s=HOLD_S)) as (cluster, scheduler):
        api = cluster.api
        api.create(
            CLASSES,
            {
                "metadata": {"name": "slow"},
                "provisioner": "example.com/slow",
                "volumeBindingMode": "WaitForFirstConsumer",
            },
        )
        spec = {
            "storageClassName": "slow",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        }
        api.create(CLAIMS, {"metadata": {"name": "claim"}, "spec": spec})
        yield Stand(api, scheduler, ApiServer.connect(cluster.kubeconfig))


def waits(api: Api, node: str, **spec: Any) -> None:
    """A pod `waits` with a volume, for which kube-scheduler has chosen a node."""
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "claim"}}
    create(api, "waits", volumes=[volume], **spec)

    def is_chosen() -> bool:
        annotations = api.get(f"{CLAIMS}/claim")["metadata"].get("annotations", {})
        return bool(annotations.get(SELECTED) == node)

    waiting.until(is_chosen, f"kube-scheduler waits for the volume on node {node}")


def create(api: Api, name: str, cards: str = "GPU-a-0", **spec: Any) -> None:
    """A pod for most of one of these cards. kube-scheduler looks at the sum of a node's cards."""
    metadata = {"annotations": {"nvidia.com/use-gpuuuid": cards}}
    api.create(PODS, failing.pod(name, 6000, metadata=metadata, **spec))


def provision(api: Api) -> None:
    """Act as a provisioner and as the controller of volumes."""
    claim = api.get(f"{CLAIMS}/claim")
    metadata = {key: claim["metadata"][key] for key in ("name", "namespace", "uid")}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "slow",
        "hostPath": {"path": "/nowhere"},
        "claimRef": {"kind": "PersistentVolumeClaim", "apiVersion": "v1", **metadata},
    }
    api.create(VOLUMES, {"metadata": {"name": "volume"}, "spec": spec})
    done = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    api.patch(f"{CLAIMS}/claim", {"metadata": done, "spec": {"volumeName": "volume"}})
    bound: Object = {"status": {"phase": "Bound"}}
    api.patch(f"{VOLUMES}/volume/status", bound)
    api.patch(f"{CLAIMS}/claim/status", bound)


def two_cards(name: str, **metadata: Any) -> Object:
    return node(name, [card(name, 0), card(name, 1)], **metadata)


@pytest.mark.timeout(200)
def test_cards_are_held_for_a_pod_until_its_volume_is_bound(stand: Stand) -> None:
    api = stand.api
    stand.add(two_cards("a"))
    waits(api, "a")
    create(api, "other")
    waiting.unschedulable(api, "other", "too little memory free on its cards")
    # kube-scheduler asks for it again and again.
    time.sleep(5 * HOLD_S)
    assert failing.bound(api) == {}
    provision(api)
    waiting.bound(api, "waits")
    assert failing.given(api) == {"GPU-a-0": 6000}
    assert failing.bound(api) == {"waits": "a"}


@pytest.mark.timeout(200)
def test_cards_are_free_again_when_kube_scheduler_has_given_up(stand: Stand) -> None:
    """The claim is deleted: the attempt fails, and no other one comes as far as to ask us."""
    api = stand.api
    stand.add(two_cards("a"))
    waits(api, "a")
    create(api, "other")
    waiting.unschedulable(api, "other", "too little memory free on its cards")
    api.patch(f"{CLAIMS}/claim", {"metadata": {"finalizers": None}})
    api.delete(f"{CLAIMS}/claim")
    waiting.bound(api, "other")
    waiting.unschedulable(api, "waits", "claim")
    assert failing.bound(api) == {"other": "a"}


@pytest.mark.timeout(200)
def test_cards_are_held_on_the_node_that_kube_scheduler_has_chosen(stand: Stand) -> None:
    """Both nodes score the same, so a is held, by name. kube-scheduler prefers the other node. The
    free rest of a is available to other pods again.
    """
    api, port = stand.api, stand.scheduler.server.port
    tainted = two_cards("a", labels={"for": "waits"})
    taint = {"key": "example.com/old", "effect": "PreferNoSchedule"}
    # A watch delivers changes in order, so a program that knows the last one knows the others.
    stand.add(
        two_cards("c"),
        two_cards("b", labels={"for": "waits"}),
        {**tainted, "spec": {"taints": [taint]}},
    )
    waits(api, "b", cards="GPU-a-0,GPU-b-0", nodeSelector={"for": "waits"})
    metadata = {"annotations": {"nvidia.com/use-gpuuuid": "GPU-b-0,GPU-c-0,GPU-c-1"}}
    more = {"schedulerName": failing.NOBODY, "metadata": metadata}
    probe = api.create(PODS, failing.pod("probe", 6000, **more))
    waiting.until(lambda: failing.fits(port, probe, "b", "c") == ["c"], "the card of b is held")
    create(api, "other", cards="GPU-b-0")
    waiting.unschedulable(api, "other", "too little memory free on its cards")
    create(api, "free", cards="GPU-a-0")
    waiting.bound(api, "free")
    provision(api)
    waiting.bound(api, "waits")
    assert failing.bound(api) == {"free": "a", "waits": "b"}
    assert failing.given(api) == {"GPU-a-0": 6000, "GPU-b-0": 6000}
