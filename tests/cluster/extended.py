"""Our extender under a real kube-scheduler: what a test needs to start both."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from cluster import objects
from cluster.api import Api, Object
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane
from cluster.servers import free_ports
from hami_py.kube import ApiServer
from hami_py.model import pods
from hami_py.model.pods import wire
from hami_py.scheduler.service import Scheduler, SchedulerSettings
from hami_py.serving import Listen

MANAGED = (
    ("nvidia.com/gpu", False),
    ("nvidia.com/gpumem", False),
    ("nvidia.com/gpucores", False),
    ("nvidia.com/gpumem-percentage", True),
    ("nvidia.com/priority", True),
)


def configuration(port: int, **more: Any) -> Object:
    """A KubeSchedulerConfiguration with our extender, as deploy/scheduler has it."""
    extender = {
        "urlPrefix": f"http://127.0.0.1:{port}",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "bindVerb": "bind",
        "preemptVerb": "preempt",
        "weight": 10,
        "nodeCacheCapable": True,
        "httpTimeout": "30s",
        "managedResources": [
            {"name": name, "ignoredByScheduler": ignored} for name, ignored in MANAGED
        ],
        **more,
    }
    return {"extenders": [extender], "percentageOfNodesToScore": 100}


def card(node: str, index: int, **more: Any) -> wire.Card:
    """A card of a hand-made node."""
    wanted = {"model": "NVIDIA A100-SXM4-80GB", "memory_mib": 10_000, **more}
    return wire.Card(uuid=f"GPU-{node}-{index}", index=index, **wanted)


def node(name: str, cards: Sequence[wire.Card], **more: Any) -> Object:
    """A node as the node agent would have published it."""
    resources = {
        "nvidia.com/gpu": sum(card.slots for card in cards),
        "nvidia.com/gpumem": sum(card.memory_mib for card in cards),
        "nvidia.com/gpucores": sum(card.cores for card in cards),
    }
    made = objects.node(name, resources)
    annotations = made["metadata"].setdefault("annotations", {})
    annotations[pods.annotations.CARDS] = pods.encode_cards(tuple(cards))
    made["metadata"].update(more)
    return made


@contextlib.contextmanager
def extended(
    start: StartControlPlane, *, settings: SchedulerSettings | None = None, **more: Any
) -> Iterator[tuple[ControlPlane, Scheduler]]:
    """A control plane whose scheduler asks an extender of ours; both end with it."""
    (port,) = free_ports(1)
    cluster = start(scheduler=configuration(port, **more))
    listen = Listen("127.0.0.1", port)
    wanted = replace(settings or SchedulerSettings(pod_selector=""), listen=listen)
    scheduler = Scheduler(ApiServer.connect(cluster.kubeconfig), wanted)
    scheduler.start()
    try:
        assert scheduler.wait_until_ready(60)
        yield cluster, scheduler
    finally:
        scheduler.stop()


def assignment(api: Api, pod: str) -> wire.Assignment:
    """What the annotation of a bound pod says."""
    seen = api.get(f"/api/v1/namespaces/default/pods/{pod}")
    found = pods.assignment_of(pods.objects.decode_pod.convert(seen))
    assert found is not None, seen["metadata"].get("annotations")
    return found
