"""Pods that ask a real kubelet for devices of a test's plugin, and what became of them."""

import json
from typing import Any

from cluster import images, objects, waiting
from cluster.api import Object
from cluster.control_plane import ControlPlane
from cluster.device_plugin import Plugin
from cluster.node import Node
from cluster.objects import NODES, PODS

GPU = "nvidia.com/gpu"

#: Two cards of four slots.
IDS = [f"GPU-{card}::{slot}" for card in "ab" for slot in range(4)]


def shows(node: Node, which: str, count: int, resource: str = GPU) -> None:
    """Wait until the node's ``capacity`` or ``allocatable`` has this many."""

    def look() -> bool:
        status = node.cluster.api.get(f"{NODES}/{node.name}")["status"]
        return bool(status[which].get(resource) == str(count))

    waiting.until(look, f"{which} of {resource} is {count}")


def runs(name: str, script: str = "sleep 1000", count: int = 1, **more: Any) -> Object:
    """A container that runs a shell script, with this many devices."""
    limits = {GPU: count} if count else {}
    command = ["/bin/sh", "-c", script]
    more = {"image": images.BUSYBOX, "imagePullPolicy": "Never", **more}
    return objects.container(name, limits, command=command, **more)


def pod(name: str, *containers: Object, **spec: Any) -> Object:
    """A pod of these containers, or of one; it is not restarted."""
    spec = {"restartPolicy": "Never", **spec}
    return objects.pod(name, containers=list(containers) or [runs("main")], **spec)


def phase(
    cluster: ControlPlane, name: str, *wanted: str, deadline: float = waiting.DEADLINE
) -> Object:
    """The pod, once it is in one of these phases."""

    def look() -> Object | None:
        seen = cluster.api.get(f"{PODS}/{name}")
        return seen if seen["status"].get("phase") in wanted else None

    return waiting.until(look, f"pod {name} is {' or '.join(wanted)}", deadline)


def ids(plugin: Plugin, method: str) -> list[tuple[str, ...]]:
    """The IDs of each call of this method so far."""
    return [call.ids for call in plugin.calls(method)]


def checkpoint(node: Node) -> list[Object]:
    """The entries of the kubelet's record of devices."""
    content = json.loads(node.checkpoint.read_text())
    return list(content["Data"]["PodDeviceEntries"] or [])
