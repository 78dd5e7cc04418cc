"""Which Kubernetes the API server is, or behaves as."""

from __future__ import annotations

import re

import msgspec

from hami_py.kube.errors import Unavailable
from hami_py.kube.server import ApiServer

__all__ = ["keeps_labels_of_bindings", "version_of"]

_PATH = "/version"


class _Version(msgspec.Struct, rename="camel"):
    major: str = ""
    minor: str = ""
    emulation_major: str = ""
    emulation_minor: str = ""


def version_of(server: ApiServer, deadline_s: float) -> tuple[int, int]:
    """Major and minor.

    Raises:
        KubeError: it cannot be told.
    """
    answer = server.get(_PATH, deadline_s=deadline_s)
    try:
        said = msgspec.json.decode(answer, type=_Version)
    except msgspec.DecodeError:
        said = _Version()
    # Providers write "34+".
    text = f"{said.emulation_major or said.major}.{said.emulation_minor or said.minor}"
    found = re.match(r"(\d+)\.(\d+)", text)
    if found is None:
        raise Unavailable(f"GET {_PATH}", f"its answer names no version: {text!r}", "look at it")
    return int(found[1]), int(found[2])


def keeps_labels_of_bindings(server: ApiServer, deadline_s: float) -> bool:
    """Whether the labels of a Binding become the pod's.

    Before 1.35 they are dropped without a word (the feature gate PodTopologyLabelsAdmission).

    Raises:
        KubeError: it cannot be told.
    """
    return version_of(server, deadline_s) >= (1, 35)
