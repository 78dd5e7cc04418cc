"""A bound pod with cards, as far as that can be told of any pod.

What binds pods may be of a later version than what reads them: its assignment, or a field of
Kubernetes' own, need not be legible here. That the pod is there, and has cards, is; and that it is
over, whatever else is in it.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import msgspec

from hami_py.kube import Undecoded
from hami_py.model.pods import objects
from hami_py.model.pods.annotations import ASSIGNMENT

__all__ = ["Bound", "is_over"]


class _Phase(msgspec.Struct):
    class Status(msgspec.Struct):
        phase: str | None = None

    status: Status | None = None


class _Place(msgspec.Struct):
    class Metadata(msgspec.Struct):
        annotations: dict[str, str] | None = None

    class Spec(msgspec.Struct, rename="camel"):
        node_name: str | None = None

    metadata: Metadata
    spec: Spec


class Bound(NamedTuple):
    """A pod that has cards, whether or not anybody here can read which."""

    uid: str
    node: str
    assignment: str

    @classmethod
    def of(cls, pod: objects.Pod | Undecoded) -> Bound | None:
        """None: it is not bound, was given no card, or is over.

        Raises:
            msgspec.ValidationError: not even that can be read.
        """
        if is_over(pod):
            return None
        if isinstance(pod, Undecoded):
            place = msgspec.json.decode(pod.raw, type=_Place)
            node, annotations = place.spec.node_name, place.metadata.annotations or {}
            text = annotations.get(ASSIGNMENT)
        else:
            node, text = pod.spec.node_name, pod.annotations.get(ASSIGNMENT)
        if not node or text is None:
            return None
        return cls(pod.metadata.uid or "", node, text)


def is_over(pod: objects.Pod | Undecoded) -> bool:
    """Whether all its containers have ended for good, and that can be read."""
    if not isinstance(pod, Undecoded):
        return pod.is_over
    with contextlib.suppress(msgspec.ValidationError):
        status = msgspec.json.decode(pod.raw, type=_Phase).status
        return status is not None and status.phase in objects.OVER
    return False
