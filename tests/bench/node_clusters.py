"""Whole clusters with a device plugin that allows everything and limits nothing, and with hami."""

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cluster import binaries, crowd, images
from cluster.crowd import Requests, Size
from cluster.device_plugin import Plugin, interfaces
from cluster.gpu_pods import GPU, shows
from cluster.limited_pods import install, start_first
from cluster.whole import GROUPS, WholeCluster

#: Devices of each card: enough for all containers of a crowd.
SLOTS = 20

#: The resource of the plugin without limits, where hami's has the usual name.
UNLIMITED = "example.com/gpu"


@dataclass(frozen=True)
class Subject:
    """A running cluster, and what a container of a size requests there."""

    cluster: WholeCluster
    requests: Requests


def prepare() -> None:
    """Build the programs and the images, outside of what is measured."""
    for group in GROUPS:
        binaries.ensure(group)
    images.whole()


@contextlib.contextmanager
def with_hami() -> Iterator[Subject]:
    """All of deploy/, ready; and a plugin without limits, whose resource is ``UNLIMITED``."""
    with _cluster() as cluster:
        install(cluster)
        start_first(cluster)
        with _plugin(cluster, UNLIMITED):
            yield Subject(cluster, crowd.limits)


@contextlib.contextmanager
def without_hami() -> Iterator[Subject]:
    """A default scheduler and a plugin without limits."""
    with _cluster() as cluster, _plugin(cluster, GPU):
        yield Subject(cluster, partial(only_cards, resource=GPU))


def only_cards(size: Size, resource: str = UNLIMITED) -> dict[str, int]:
    """The resources that a container requests from a plugin without limits."""
    return {resource: size.cards}


@contextlib.contextmanager
def _cluster() -> Iterator[WholeCluster]:
    with (
        tempfile.TemporaryDirectory(prefix="hami-bench-") as folder,
        WholeCluster(
            Path(folder), cards=crowd.CARDS, kubelet_config=crowd.KUBELET, audits=True
        ) as cluster,
    ):
        yield cluster


@contextlib.contextmanager
def _plugin(cluster: WholeCluster, resource: str) -> Iterator[None]:
    """It names a device's card to the container runtime, as hami's does."""
    modules = interfaces()

    def allocate(request: Any, context: Any) -> Any:
        (wanted,) = request.container_requests
        cards = {id.partition("::")[0] for id in wanted.devices_ids}
        devices = [modules.plugin.CDIDevice(name=f"{GPU}={card}") for card in sorted(cards)]
        answer = modules.plugin.ContainerAllocateResponse(cdi_devices=devices)
        return modules.plugin.AllocateResponse(container_responses=[answer])

    ids = [f"{card}::{slot}" for card in cluster.gpu.uuids() for slot in range(SLOTS)]
    plugin = Plugin(
        modules,
        cluster.node.device_plugins,
        ids,
        resource=resource,
        hooks={"Allocate": allocate},
        name="unlimited.sock",
        asks=False,
    )
    with plugin:
        shows(cluster.node, "allocatable", len(ids), resource)
        yield
