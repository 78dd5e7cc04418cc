"""A bound pod with cards, as far as it can be decoded.

A newer version of this program or of Kubernetes may have written the pod, so its assignment or
another field may be invalid here. It is still certain that the pod exists and has cards, and
whether it has ended.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import msgspec

from hami_py.kube import Undecoded
from hami_py.model.pods import objects
from hami_py.model.pods.annotations import ASSIGNMENT
from hami_py.model.pods.decoding import prepare


class _Phase(msgspec.Struct):
    class Status(msgspec.Struct):
        phase: str | None = None

    status: Status | None = None


class _Binding(msgspec.Struct):
    class Metadata(msgspec.Struct):
        annotations: dict[str, str] | None = None

    class Spec(msgspec.Struct, rename="camel"):
        node_name: str | None = None

    metadata: Metadata
    spec: Spec


prepare(_Phase, _Binding)


class Bound(NamedTuple):
    """A pod that has cards, whether or not its assignment is valid."""

    uid: str
    node: str
    assignment: str

    @classmethod
    def of(cls, pod: objects.Pod | Undecoded) -> Bound | None:
        """The pod's node and assignment; ``None`` if it is not bound, has no card or has ended.

        Raises:
            msgspec.ValidationError: not even these fields can be decoded.
        """
        if is_over(pod):
            return None
        if isinstance(pod, Undecoded):
            found = msgspec.json.decode(pod.raw, type=_Binding)
            node, annotations = found.spec.node_name, found.metadata.annotations or {}
            text = annotations.get(ASSIGNMENT)
        else:
            node, text = pod.spec.node_name, pod.annotations.get(ASSIGNMENT)
        if not node or text is None:
            return None
        return cls(pod.metadata.uid or "", node, text)


def is_over(pod: objects.Pod | Undecoded) -> bool:
    """Whether all containers of the pod have ended for good, as far as it can be decoded."""
    if not isinstance(pod, Undecoded):
        return pod.is_over
    with contextlib.suppress(msgspec.ValidationError):
        status = msgspec.json.decode(pod.raw, type=_Phase).status
        return status is not None and status.phase in objects.OVER
    return False
