"""What pods that no longer exist have left on a node.

Kubelet, container runtime and kernel name nearly everything after the pod's UID or the container's
ID. So all names on the node are compared with the pods and containers that exist.
"""

import contextlib
import json
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from cluster import card_owners, waiting
from cluster.node import Node
from cluster.whole import WholeCluster

_UID = re.compile(r"(?<![-0-9a-f])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![-0-9a-f])")
_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")

#: Parts of names of what containerd keeps of a container whose start was interrupted: the process
#: that serves it, and the folder of its task.
INTERRUPTED = ("containerd-shim", "io.containerd.runtime.v2.task")

#: Seconds: the kubelet removes cgroups and folders of pods some time after they have ended.
_DEADLINE = 120.0


def check_nothing_remains(cluster: WholeCluster, besides: Collection[str] = ()) -> None:
    """Wait until nothing remains of pods that have ended, but names with these parts."""
    left: list[str] = []

    def look() -> bool:
        left[:] = [name for name in remains(cluster) if not any(part in name for part in besides)]
        return not left

    try:
        waiting.until(look, "nothing remains", _DEADLINE)
    except TimeoutError as error:
        raise AssertionError(f"{error}: {left}") from None


def remains(cluster: WholeCluster) -> list[str]:
    """Names of pods and containers that do not exist, and of hami's slots and entries for them."""
    node = cluster.node
    uids = {pod["metadata"]["uid"] for pod in cluster.api.list("/api/v1/pods")}
    containers = {id for uid in uids for id in _containers(node, uid)}
    found = [
        name
        for name in _names(node)
        if not {*_UID.findall(name)} <= uids or not {*_ID.findall(name)} <= containers
    ]
    entries = card_owners.ledger(node)
    found += [f"ledger: {each}" for each in entries if each.pod not in uids]
    slots = card_owners.slots(node)
    if len(slots) != len(entries):
        found.append(f"{len(slots)} slots for {len(entries)} entries: {slots}")
    for path in node.cdi.glob("hami*"):
        devices = json.loads(path.read_text())["devices"]
        found += [f"CDI device {each['name']}" for each in devices if each["name"] not in slots]
    namespaces = len(list((node.root / "run" / "netns").iterdir()))
    if namespaces != len(uids):
        found.append(f"{namespaces} network namespaces for {len(uids)} pods")
    return found


def _containers(node: Node, uid: str) -> list[str]:
    """The containers and the sandbox of a pod."""
    return node.ctr("containers", "list", "-q", f'labels."io.kubernetes.pod.uid"=={uid}').split()


def _names(node: Node) -> Iterator[str]:
    mounts = Path(f"/proc/{node.init_pid()}/mountinfo").read_text().splitlines()
    # Those of network namespaces have names of their own.
    yield from (f"mount {line.split()[4]}" for line in mounts if "/run/netns/" not in line)
    for hierarchy in node.cgroups:
        # Unlike `Path.rglob`, it allows that one ends meanwhile.
        for folder, names, _ in os.walk(hierarchy):
            yield from (f"cgroup {folder}/{name}" for name in names)
    for parent in (node.state / "pods", *_runtime_folders(node), node.pod_logs):
        yield from (f"folder {path}" for path in parent.glob("*"))
    for file in (node.folder / "addresses" / "test").glob("*.*.*.*"):
        yield f"address {file.name} of {file.read_text()}"
    for line in node.ctr("snapshots", "--snapshotter", "overlayfs", "list").splitlines():
        # Those of images are named by digests.
        if not line.startswith("sha256:"):
            yield f"snapshot {line.split()[0]}"
    for id in node.ctr("containers", "list", "-q").split():
        yield f"container {id}"
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            yield from _process(node, process)


def _runtime_folders(node: Node) -> Iterator[Path]:
    runtime = node.folder / "ctd"
    for kept in ("root", "state"):
        for part in ("containers", "sandboxes"):
            yield runtime / kept / "io.containerd.grpc.v1.cri" / part
        yield runtime / kept / "io.containerd.runtime.v2.task" / "k8s.io"


def _process(node: Node, process: Path) -> Iterator[str]:
    """Its cgroup, and of a containerd-shim the arguments, if it is one of this node."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        cgroups = (process / "cgroup").read_text()
        command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        if node.cgroups[0].name in cgroups or str(node.folder) in command:
            yield f"process {process.name}, {command}, {cgroups}"
