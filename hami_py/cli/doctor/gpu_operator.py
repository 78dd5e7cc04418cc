"""NVIDIA's GPU Operator on the node of this pod: the commands that stop its device plugin there."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from hami_py.errors import HamiError

_DEADLINE_S = 5.0

_DEPLOY = "nvidia.com/gpu.deploy."
"""The Operator labels nodes with this and the name of a component; its DaemonSets select them."""

_PATCH = """--type=merge --patch='{"spec":{"devicePlugin":{"enabled":false}}}'"""


def labels_of(node: str | None) -> Mapping[str, str] | None:
    """The labels of a node; None = this process cannot ask the API server."""
    if node is None:
        return None
    with suppress(HamiError, ImportError):
        # Imported here, because a machine outside of Kubernetes may not have the client.
        from hami_py.kube import ApiServer, list_objects  # noqa: PLC0415
        from hami_py.model.pods import objects  # noqa: PLC0415

        server = ApiServer.connect()
        query = {"fieldSelector": f"metadata.name={node}"}
        try:
            found, _ = list_objects(
                server, "/api/v1/nodes", objects.Node, query=query, deadline_s=_DEADLINE_S
            )
        finally:
            server.close()
        return found[0].labels if found else None
    return None


def how_to_stop(node: str | None, labels: Mapping[str, str] | None) -> str:
    """How to remove NVIDIA's device plugin from a node; None = unknown."""
    name = node or "NODE"
    operator = (
        f"`kubectl label --overwrite node {name} {_DEPLOY}device-plugin=false`, or for all nodes "
        f"`kubectl patch clusterpolicies.nvidia.com/cluster-policy {_PATCH}` and the value "
        "devicePlugin.enabled=false of the Operator's release"
    )
    other = f"delete its DaemonSet, or exclude {name} by the DaemonSet's nodeSelector or affinity"
    if labels is None:
        return f"with the GPU Operator {operator}; without it {other}"
    if any(label.startswith(_DEPLOY) for label in labels):
        return f"the GPU Operator has installed it: {operator}"
    return f"{other}; the GPU Operator does not manage this node"
