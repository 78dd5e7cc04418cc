"""A whole cluster with hami, and one whose device plugin allows everything and limits nothing."""

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Subject:
    """A running cluster, and what a container requests there."""

    cluster: WholeCluster
    requests: Requests


def prepare() -> None:
    """Build the programs and the images, outside of what is measured."""
    for group in GROUPS:
        binaries.ensure(group)
    images.whole()


@contextlib.contextmanager
def with_hami() -> Iterator[Subject]:
    """All of deploy/, ready."""
    with _cluster() as cluster:
        install(cluster)
        start_first(cluster)
        yield Subject(cluster, crowd.limits)


@contextlib.contextmanager
def without_hami() -> Iterator[Subject]:
    """A default scheduler, and a plugin that names a device's card to the container runtime."""
    with _cluster() as cluster:
        modules = interfaces()

        def allocate(request: Any, context: Any) -> Any:
            (wanted,) = request.container_requests
            cards = {id.partition("::")[0] for id in wanted.devices_ids}
            devices = [modules.plugin.CDIDevice(name=f"{GPU}={card}") for card in sorted(cards)]
            answer = modules.plugin.ContainerAllocateResponse(cdi_devices=devices)
            return modules.plugin.AllocateResponse(container_responses=[answer])

        ids = [f"{card}::{slot}" for card in cluster.gpu.uuids() for slot in range(SLOTS)]
        hooks = {"Allocate": allocate}
        folder = cluster.node.device_plugins
        with Plugin(modules, folder, ids, hooks=hooks, asks=False):
            shows(cluster.node, "allocatable", len(ids))
            yield Subject(cluster, _only_cards)


def _only_cards(size: Size) -> dict[str, int]:
    return {GPU: size.cards}


@contextlib.contextmanager
def _cluster() -> Iterator[WholeCluster]:
    with (
        tempfile.TemporaryDirectory(prefix="hami-bench-") as folder,
        WholeCluster(
            Path(folder), cards=crowd.CARDS, kubelet_config=crowd.KUBELET, audits=True
        ) as cluster,
    ):
        yield cluster
