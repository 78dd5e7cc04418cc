"""Pods placed by our extender on hand-made nodes: how tests make them, and where they went."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cluster import objects, waiting
from cluster.api import Object
from cluster.control_plane import ControlPlane
from cluster.extended import assignment, until_known
from cluster.objects import NODES, PODS, QUOTAS
from hami_py.kube import ApiServer
from hami_py.model.pods import wire
from hami_py.scheduler.service import Scheduler

#: The label that the webhook would add, and the names of Kubernetes' own resources.
GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
PERCENTAGE = "nvidia.com/gpumem-percentage"

#: Annotations of a pod.
USE = "nvidia.com/use-gpuuuid"
NODE_POLICY, CARD_POLICY = "hami.io/node-scheduler-policy", "hami.io/gpu-scheduler-policy"

#: A node without cards, on which it is tried what kube-scheduler knows.
_PLAIN = "plain"

_numbers = itertools.count()


def asks(memory: int | None = None, *, cards: int = 1, cores: int = 0, percent: int = 0) -> Object:
    """The limits of a container: MiB on each of some cards, or a percentage."""
    said = {GPU: cards, MEMORY: memory, CORES: cores or None, PERCENTAGE: percent or None}
    return {name: number for name, number in said.items() if number is not None}


class Placing:
    """A cluster whose nodes, pods and quotas are one test's at a time."""

    def __init__(self, cluster: ControlPlane, scheduler: Scheduler) -> None:
        self.cluster, self.api = cluster, cluster.api
        self._server = ApiServer.connect(cluster.kubeconfig)
        self._scheduler = scheduler
        self.api.create(NODES, objects.node(_PLAIN))

    def clear(self) -> None:
        """Deletes what a test made."""
        for path in (PODS, QUOTAS, f"{NODES}?fieldSelector=metadata.name!={_PLAIN}"):
            self.api.delete_all(path)
        self.sync_extender()

    def add(self, *nodes: Object) -> None:
        """Makes nodes."""
        for node in nodes:
            self.api.create(NODES, node)
        self.sync_extender()

    def change(self, node: str, patch: Object) -> None:
        """Changes a node."""
        self.write(node, patch)
        self.sync_extender()

    def write(self, node: str, patch: Object) -> None:
        """Change a node without waiting for the extender, so that only a requeue retries pods."""
        self.api.patch(f"{NODES}/{node}", patch)

    def sync_extender(self) -> None:
        """Wait until the extender and kube-scheduler know all earlier writes.

        A watch delivers changes in order, so a program that knows the last change knows the others.
        For kube-scheduler the last change is a node label that it needs to bind a pod there. The
        label also makes it retry pending pods.
        """
        until_known(self._server, self._scheduler)
        number = str(next(_numbers))
        self.api.patch(f"{NODES}/{_PLAIN}", {"metadata": {"labels": {"settled": number}}})
        probe = f"probe-{number}"
        self.api.create(PODS, objects.pod(probe, nodeSelector={"settled": number}))
        waiting.bound(self.api, probe)
        self.api.delete(f"{PODS}/{probe}", grace_seconds=0)

    def create(
        self,
        name: str,
        limits: Mapping[str, object] | None = None,
        annotations: Mapping[str, str] | None = None,
        *,
        containers: Iterable[Object] | None = None,
        labels: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> Object:
        """A pod with one container with these limits, or with ``containers``."""
        listed = None if containers is None else list(containers)
        metadata = {"annotations": dict(annotations or {}), "labels": dict(labels or {})}
        pod = objects.pod(name, limits, containers=listed, metadata=metadata, **spec)
        return self.api.create(PODS, pod)

    def place(
        self, name: str, *arguments: Any, **more: Any
    ) -> dict[str, tuple[wire.CardAllocation, ...]]:
        """Create a pod; returns the cards of each container when it is bound."""
        self.create(name, *arguments, **more)
        return self.grants(name)

    def refuse(self, name: str, *arguments: Any, **more: Any) -> str:
        """Why a new pod is not placed, as its condition says."""
        self.create(name, *arguments, **more)
        return waiting.unschedulable(self.api, name)

    def fill(self, card: str, limits: Mapping[str, object], **more: Any) -> str:
        """A pod on this card; its name."""
        name = f"fills-{next(_numbers)}"
        ((grant,),) = self.place(name, limits, {USE: card}, **more).values()
        assert grant.card == card
        return name

    def grants(self, name: str) -> dict[str, tuple[wire.CardAllocation, ...]]:
        """The cards of each container of a pod, when it is bound."""
        pod = waiting.bound(self.api, name)
        seen = assignment(self.api, name)
        assert seen.node == pod["spec"]["nodeName"]
        return seen.containers

    def cards(self, name: str) -> list[str]:
        """The cards of all containers of a pod, once it is bound."""
        return [grant.card for grants in self.grants(name).values() for grant in grants]

    def node(self, name: str) -> str:
        """The pod's node, once it is bound."""
        return str(waiting.bound(self.api, name)["spec"]["nodeName"])

    def delete(self, name: str) -> None:
        """Deletes a pod, and waits until that is known."""
        self.api.delete(f"{PODS}/{name}", grace_seconds=0)
        self.sync_extender()

    def given(self) -> tuple[Counter[str], Counter[str]]:
        """MiB and percent that are given of each card, of each pod what it takes at its most:
        an init container beside the sidecars before it, or those beside the apps."""
        memory: Counter[str] = Counter()
        cores: Counter[str] = Counter()
        for pod in self.api.list(PODS):
            if pod["spec"].get("nodeName"):
                grants = assignment(self.api, pod["metadata"]["name"]).containers
                memory += _peak(pod, grants, lambda grant: grant.memory_mib)
                cores += _peak(pod, grants, lambda grant: grant.cores)
        return memory, cores


def _peak(
    pod: Object,
    grants: Mapping[str, tuple[wire.CardAllocation, ...]],
    amount: Callable[[wire.CardAllocation], int],
) -> Counter[str]:
    stays: Counter[str] = Counter()
    peak: Counter[str] = Counter()
    first = pod["spec"].get("initContainers", [])
    for container in [*first, *pod["spec"]["containers"]]:
        has = Counter({grant.card: amount(grant) for grant in grants.get(container["name"], ())})
        if container not in first or container.get("restartPolicy") == "Always":
            stays += has
            has = Counter()
        peak |= stays + has
    return peak
