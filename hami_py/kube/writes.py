"""The requests that change something on the API server, each of them one write."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from hami_py.kube.server import MERGE_PATCH, ApiServer

__all__ = ["bind", "patch_metadata"]


def bind(
    server: ApiServer,
    *,
    namespace: str,
    pod: str,
    uid: str,
    node: str,
    annotations: Mapping[str, str],
    labels: Mapping[str, str],
    deadline_s: float,
) -> None:
    """Binds a pod to a node and sets its annotations and labels, in one write.

    The API server merges a Binding's annotations and labels into the pod's in the write that sets
    ``nodeName``, so nobody ever sees one without the other.

    Args:
        server: where.
        namespace: the pod's.
        pod: its name.
        uid: its UID: a pod of the same name that came later is another, and is left alone.
        node: the node's name.
        annotations: what becomes part of the pod's.
        labels: the same.
        deadline_s: how long to wait for the answer.

    Raises:
        Conflict: the pod is bound already, or is another one.
        NotFound: it is gone.
        KubeError: see there.
    """
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": pod,
            "namespace": namespace,
            "uid": uid,
            "annotations": dict(annotations),
            "labels": dict(labels),
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    where, name = quote(namespace, safe=""), quote(pod, safe="")
    path = f"/api/v1/namespaces/{where}/pods/{name}/binding"
    server.post(path, binding, deadline_s=deadline_s)


def patch_metadata(
    server: ApiServer,
    path: str,
    *,
    annotations: Mapping[str, str | None] | None = None,
    labels: Mapping[str, str | None] | None = None,
    deadline_s: float,
) -> None:
    """Sets annotations and labels of the object at a path; ``None`` removes one."""
    metadata = {
        key: dict(values)
        for key, values in (("annotations", annotations), ("labels", labels))
        if values is not None
    }
    server.patch(path, {"metadata": metadata}, MERGE_PATCH, deadline_s=deadline_s)
