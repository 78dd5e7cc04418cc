"""The requests that change objects, each of them one write, and what a binding may contain.

The API server merges a Binding's annotations into the pod's without checking them. If they were too
large, or a key were invalid, it would reject every later write of the pod (422), including the
kubelet's status updates. So ``check_annotations`` checks them before. Before Kubernetes 1.35, the
API server ignores a Binding's labels (``keeps_labels_of_bindings``).

https://github.com/kubernetes/apimachinery/blob/master/pkg/api/validation/objectmeta.go
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from hami_py.errors import InvalidValue
from hami_py.kube.errors import Unavailable
from hami_py.kube.server import MERGE_PATCH, ApiServer, path_of

MOST_BYTES = 256 << 10
"""The largest size of the keys and values of all annotations of one object together."""

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_PREFIX = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*")

_VERSION = "/version"


def bind(
    server: ApiServer,
    namespace: str,
    pod: str,
    uid: str,
    node: str,
    *,
    annotations: Mapping[str, str],
    labels: Mapping[str, str],
    deadline_s: float,
) -> None:
    """Binds a pod to a node and sets its annotations and labels, in one write.

    The API server merges a Binding's annotations and labels into the pod's in the write that sets
    ``nodeName``, so no client sees one without the other. A later pod of the same name has another
    UID, and stays as it is.

    Raises:
        Conflict: the pod is bound already, or has another UID.
        NotFound: the pod does not exist.
        KubeError: another error; see ``hami_py.kube.errors``.
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
    server.post(f"{path_of(namespace, 'pods', pod)}/binding", binding, deadline_s=deadline_s)


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


def patch_status(
    server: ApiServer, path: str, resources: Mapping[str, int | None], *, deadline_s: float
) -> None:
    """Sets extended resources in the status of the node at a path; ``None`` removes one.

    The API server drops a change of the status in a write of the node itself, without an error.
    """
    amounts = {name: None if n is None else str(n) for name, n in resources.items()}
    status = {"capacity": amounts, "allocatable": amounts}
    server.patch(f"{path}/status", {"status": status}, MERGE_PATCH, deadline_s=deadline_s)


def annotation_bytes(annotations: Mapping[str, str]) -> int:
    """The size of annotations, as the API server counts it."""
    return sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())


def check_annotations(present: int, written: Mapping[str, str]) -> None:
    """Checks that annotations may be added to those of an object, which have ``present`` bytes.

    One that replaces another counts in addition to it.

    Raises:
        InvalidValue: a key is invalid, or the size is too large.
    """
    for key in written:
        prefix, slash, name = key.rpartition("/")
        if not _NAME.fullmatch(name) or (slash and not _PREFIX.fullmatch(prefix.lower())):
            fix = "write 1 to 63 characters of A-Z, a-z, 0-9, -, _ and ., or domain/name"
            raise InvalidValue("metadata.annotations", key, fix)
    more = annotation_bytes(written)
    if present + more > MOST_BYTES:
        room = max(0, MOST_BYTES - more)
        fix = (
            f"Kubernetes allows {MOST_BYTES} bytes and the binding writes up to {more}: "
            f"shorten the pod's own annotations to {room} bytes"
        )
        raise InvalidValue("metadata.annotations", f"{present} bytes", fix)


class _Version(msgspec.Struct, rename="camel"):
    major: str = ""
    minor: str = ""
    emulation_major: str = ""
    emulation_minor: str = ""


def keeps_labels_of_bindings(server: ApiServer, deadline_s: float) -> bool:
    """Whether the API server adds the labels of a Binding to the pod's.

    It does so from 1.35 on (the feature gate PodTopologyLabelsAdmission), and ignores them before.

    Raises:
        KubeError: the version is not known.
    """
    return _version_of(server, deadline_s) >= (1, 35)


def _version_of(server: ApiServer, deadline_s: float) -> tuple[int, int]:
    """The API server's version, or the version that it emulates."""
    answer = server.get(_VERSION, deadline_s=deadline_s)
    try:
        version = msgspec.json.decode(answer, type=_Version)
    except msgspec.DecodeError:
        version = _Version()
    # Some providers write "34+".
    text = f"{version.emulation_major or version.major}.{version.emulation_minor or version.minor}"
    found = re.match(r"(\d+)\.(\d+)", text)
    if found is None:
        why = f"the answer has no version: {text!r}"
        raise Unavailable(f"GET {_VERSION}", why, "check the API server")
    return int(found[1]), int(found[2])
