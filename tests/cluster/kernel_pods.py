"""Nodes whose driver limits the memory of cgroups, and what it and the pages limit there.

The stub charges a process by its cgroup of version 2. A machine may have one of those beside the
hierarchies of version 1: runc puts containers into both, and shows them only version 1. There, the
agent's container gets the mount that it has by itself on nodes with version 2 only.
"""

import os
from pathlib import Path
from typing import NamedTuple

from cluster import card_owners, objects
from cluster.api import Object
from cluster.images import CLIENT
from cluster.limited_pods import install
from cluster.node import Node
from cluster.node_gpu import NodeGpu
from cluster.whole import WholeCluster
from hami_py._native import LimitsPage
from support import artifacts, cgroups

AGENT = "/apis/apps/v1/namespaces/hami-system/daemonsets/hami-node"

MERGE = "application/strategic-merge-patch+json"

#: Allocates all that it gets, without any library.
STATIC = "/programs/static"


def gpu(folder: Path) -> NodeGpu:
    """One card, with the back end dmem; for `WholeCluster`."""
    return NodeGpu(artifacts.find(), folder, "a100", memory_limits="dmem")


def install_kernel_limits(cluster: WholeCluster) -> None:
    """As `install`, with an agent that sees the cgroups of version 2."""
    mount = str(cgroups.mount())
    cluster.apply()
    if mount != "/sys/fs/cgroup":
        shown = {"name": "cgroups", "mountPath": mount, "readOnly": True}
        volume = {"name": "cgroups", "hostPath": {"path": mount}}
        spec = {"containers": [{"name": "node", "volumeMounts": [shown]}], "volumes": [volume]}
        cluster.api.patch(AGENT, {"spec": {"template": {"spec": spec}}}, MERGE)
    install(cluster)


class Limit(NamedTuple):
    """The bytes of a card that a container may have."""

    card: int
    bytes: int


def by_driver(gpu: NodeGpu) -> dict[Path, Limit]:
    """All limits that the driver has, by cgroup; each has one card."""
    found: dict[Path, Limit] = {}
    for each in gpu.ledger()["memory_limits"]:
        assert Path(each["cgroup"]) not in found, each
        found[Path(each["cgroup"])] = Limit(each["card"], each["hard"])
    return found


def by_pages(node: Node, gpu: NodeGpu) -> dict[Path, Limit]:
    """What the pages limit, by the cgroup that the agent has recorded; each has one card."""
    uuids, found = gpu.uuids(), {}
    for entry in card_owners.entries(node):
        cgroup = Path(entry.get("cgroup") or "/nowhere")
        # That of a container that has ended is removed.
        if cgroup.is_dir():
            page = LimitsPage.open(node.root / "run/hami/slices" / entry["slot"] / "limits")
            (row,) = page.rows()
            assert row.memory_limit is not None
            found[cgroup] = Limit(uuids.index(row.uuid), row.memory_limit)
    return found


def cgroup_of(node: Node, pod: Object) -> Path:
    """The cgroup of a pod's one container, which runs."""
    (status,) = pod["status"]["containerStatuses"]
    id, mount = status["containerID"].rpartition("/")[2], cgroups.mount()
    assert mount is not None
    # Unlike `Path.rglob`, it allows that others are removed meanwhile.
    (found,) = (Path(at, id) for at, names, _ in os.walk(mount / node.folder.name) if id in names)
    return found


def static(name: str, mib: int) -> Object:
    """A pod of the static program; its group in the stub's ledger is its UID."""
    uid = {"valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": mib, "nvidia.com/gpucores": 1}
    image = {"image": CLIENT, "imagePullPolicy": "Never", "command": [STATIC]}
    env = [{"name": "STUB_GPU_GROUP", **uid}]
    container = objects.container("main", limits, env=env, **image)
    pod = objects.pod(name, containers=[container], restartPolicy="Always")
    pod["metadata"]["annotations"] = {"hami.io/isolation": "kernel"}
    return pod
