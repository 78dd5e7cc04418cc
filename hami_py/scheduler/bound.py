"""A bound pod with cards, as far as that can be told of any pod.

What binds pods may be of a later version than what reads them: its assignment, or a field of
Kubernetes' own, need not be legible here. That the pod is there, and has cards, is.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from hami_py.kube import Undecoded
from hami_py.model.pods import objects
from hami_py.model.pods.annotations import ASSIGNMENT

__all__ = ["Bound"]


class _Outline(msgspec.Struct):
    """Where a pod is, and whether it has cards, whatever else is in it."""

    class Metadata(msgspec.Struct):
        annotations: dict[str, str] | None = None

    class Spec(msgspec.Struct, rename="camel"):
        node_name: str | None = None

    class Status(msgspec.Struct, frozen=True):
        phase: str | None = None

    metadata: Metadata
    spec: Spec
    status: Status = Status()


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
        if isinstance(pod, Undecoded):
            outline = msgspec.json.decode(pod.raw, type=_Outline)
            node, is_over = outline.spec.node_name, outline.status.phase in objects.OVER
            text = (outline.metadata.annotations or {}).get(ASSIGNMENT)
        else:
            node, is_over, text = pod.spec.node_name, pod.is_over, pod.annotations.get(ASSIGNMENT)
        if not node or text is None or is_over:
            return None
        return cls(pod.metadata.uid or "", node, text)
