"""Starts our extender under a real kube-scheduler."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cluster import objects, waiting
from cluster.api import Api, Object
from cluster.control_plane import ControlPlane, Settings
from cluster.deployed import documents
from cluster.objects import PODS
from cluster.servers import free_ports
from hami_py.cluster.view import ClusterView
from hami_py.kube import ApiServer
from hami_py.model import pods
from hami_py.model.pods import wire
from hami_py.scheduler.service import Scheduler
from hami_py.scheduler.settings import SchedulerSettings, Timing
from hami_py.serving import Listen

#: The user name of the extender of `extended` at the API server; no other client has it.
EXTENDER = "extender"

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"

#: The fields of deploy's configuration that a test cluster sets itself.
_OTHERS = ("apiVersion", "kind", "leaderElection", "profiles")


def configuration(port: int, wanted: Object | None = None) -> Object:
    """deploy's or another one, for pods that name no scheduler, with our extender at this port."""
    wanted = wanted or documents("scheduler/scheduler.yaml")[0]
    (extender,) = wanted["extenders"]
    extender["urlPrefix"] = f"http://127.0.0.1:{port}"
    return {key: value for key, value in wanted.items() if key not in _OTHERS}


def make_wake(api: Api) -> None:
    """deploy's StorageClass, through which the extender has refused pods tried again."""
    (wake,) = documents("scheduler/wake.yaml")
    api.create(CLASSES, wake)


def asking(
    start: Callable[..., ControlPlane],
    port: int,
    *,
    settings: Settings | None = None,
    **more: Any,
) -> ControlPlane:
    """A control plane whose scheduler asks the extender at this port.

    A pod that comes before the extender has heard of its node is refused; without the
    StorageClass, kube-scheduler would not ask again for five minutes.
    """
    cluster = start(scheduler={**configuration(port), **more}, settings=settings)
    make_wake(cluster.api)
    return cluster


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
def extender(
    server: ApiServer,
    port: int,
    *,
    pod_selector: str = "",
    timing: Timing | None = None,
    lease: tuple[str, str] | None = None,
    lease_holder: str | None = None,
) -> Iterator[Scheduler]:
    """One replica; it may not know the cluster yet.

    All pods count where no selector is named: most tests have no webhook that labels them.
    """
    settings = SchedulerSettings(
        listen=Listen("127.0.0.1", port),
        pod_selector=pod_selector,
        timing=timing or Timing(),
        lease=lease,
        lease_holder=lease_holder,
    )
    scheduler = Scheduler(server, settings)
    scheduler.start()
    try:
        yield scheduler
    finally:
        scheduler.stop()


@contextlib.contextmanager
def extended(
    start: Callable[..., ControlPlane],
    *,
    timing: Timing | None = None,
    settings: Settings | None = None,
    pod_selector: str = "",
) -> Iterator[tuple[ControlPlane, Scheduler]]:
    """A control plane whose scheduler asks an extender of ours; both end with it."""
    (port,) = free_ports(1)
    cluster = asking(start, port, settings=settings)
    server = ApiServer.connect(cluster.kubeconfig_for(cluster.user(EXTENDER, "system:masters")))
    with extender(server, port, pod_selector=pod_selector, timing=timing) as scheduler:
        assert scheduler.wait_until_ready(60)
        yield cluster, scheduler


def until_known(server: ApiServer, scheduler: Scheduler) -> None:
    """Waits until the extender knows what the API server does, and holds nothing besides."""
    known = scheduler.cluster.allocator.digest
    waiting.until(
        lambda: ClusterView.read(server).digest() == known(),
        "the extender knows what the API server does",
    )


def assignment(api: Api, pod: str) -> wire.Assignment:
    """The content of the annotation of a bound pod."""
    seen = api.get(f"{PODS}/{pod}")
    found = pods.assignment_of(pods.objects.decode_pod.convert(seen))
    assert found is not None, seen["metadata"].get("annotations")
    return found
