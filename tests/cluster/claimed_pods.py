"""A node and a namespace whose cards a DRA driver allocates and our agent limits, and pods there.

The containers have a program of CUDA and the driver's libraries, as with NVIDIA's driver: these are
edits of the driver's class. The module `claims` has the amounts of a claim.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from cluster import claims, images, waiting
from cluster.api import Object
from cluster.claims import CLASSES, ClaimsCluster, ClaimsDriver
from cluster.claims_driver import NAME
from cluster.limited_pods import DEADLINE, LABEL
from cluster.objects import NODES
from cluster.whole import WholeCluster
from hami_py._native import LimitRow, LimitsPage

#: The label of a node and of a namespace.
OWNER = "hami.io/owner"

#: The resource of a container that is limited.
LIMITS = "hami.io/limits"

NAMESPACE = "/api/v1/namespaces/default"

SYSTEM_PODS = "/api/v1/namespaces/hami-system/pods"

#: Where a container has its limits.
PAGE = Path("/usr/local/hami/limits")

_EDITS = ("env", "mounts", "hooks")


def install(cluster: WholeCluster, folder: Path) -> ClaimsCluster:
    """Start the driver and apply deploy/. The node and the default namespace are of others."""
    every = json.loads((cluster.node.cdi / "nvidia.json").read_text())["containerEdits"]
    edits = {"containerEdits": {name: every[name] for name in _EDITS if name in every}}
    config = [claims.opaque(NAME, edits)]
    cluster.api.create(CLASSES, claims.device_class(config=config))
    driver = ClaimsDriver(cluster.node, cluster.gpu, folder)
    driver.start()
    set_labels(cluster, {OWNER: "others", **LABEL})
    cluster.api.patch(NAMESPACE, {"metadata": {"labels": {OWNER: "others"}}})
    cluster.apply()
    for part in ("deployment/hami-webhook", "daemonset/hami-node"):
        cluster.rolled_out(part)
    waiting.until(lambda: published(node(cluster)) == {"others"}, "the node has limits", DEADLINE)
    return ClaimsCluster(cluster, driver)


def node(cluster: WholeCluster) -> Object:
    return cluster.api.get(f"{NODES}/{cluster.node.name}")


def set_labels(cluster: WholeCluster, labels: dict[str, str | None]) -> None:
    """Change these labels of the node."""
    cluster.api.patch(f"{NODES}/{cluster.node.name}", {"metadata": {"labels": labels}})


def published(node: Object) -> set[str]:
    """The owners for whom something is published on a node."""
    allocatable = {name for name, n in node["status"]["allocatable"].items() if n != "0"}
    has_cards = "hami.io/cards" in node["metadata"].get("annotations", {})
    ours = {"nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"} & allocatable
    found = {"hami": has_cards or ours, "others": LIMITS in allocatable}
    return {owner for owner, is_published in found.items() if is_published}


def uses(name: str, script: str, *used: tuple[str, str | None], **more: Any) -> Object:
    """A container of the client's image that uses these claims, as of `claims.uses`."""
    group = {"name": "STUB_GPU_GROUP", "value": f"$(POD)/{name}"}
    pod = {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
    return claims.uses(name, script, *used, **{"image": images.CLIENT, "env": [pod, group], **more})


def programs(cluster: WholeCluster, uid: str, program: str) -> Iterator[int]:
    """The processes of a pod that run this program, by the end of its path."""
    for process in cluster.processes(uid):
        with suppress(OSError):
            if str(Path(f"/proc/{process}/exe").readlink()).endswith(program):
                yield process


def limits(process: int) -> list[LimitRow]:
    """The limits of a process's container, as it sees them."""
    return LimitsPage.open(Path(f"/proc/{process}/root{PAGE}")).rows()


def agent(cluster: WholeCluster) -> str:
    """The UID of the agent's pod."""
    selector = "labelSelector=app.kubernetes.io/name=hami-node"
    (found,) = cluster.api.list(f"{SYSTEM_PODS}?{selector}")
    return str(found["metadata"]["uid"])
