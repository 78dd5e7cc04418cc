"""Pods that ask for our resources, as the allocator is to see them.

One that has its cards is placed, one that is not bound waits, and one whose cards nobody can read
bars its node.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from hami_py.errors import HamiError, InvalidValue
from hami_py.kube import Undecoded
from hami_py.model import pods
from hami_py.model.pods import objects, wire
from hami_py.scheduler.bound import Bound, is_over

if TYPE_CHECKING:
    from hami_py.scheduler.cluster import Cluster

__all__ = ["Placed", "PodSink"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Placed:
    """What was told of a pod that has its cards.

    Attributes:
        namespace: the pod's.
        name: its name.
        labels: its labels; where they alone have changed the cards have not.
        node: the node that it is bound to.
        priority: Kubernetes' priority of it.
        assignment: its cards, as the annotation has them.
        is_started: whether its ordinary init containers are done for good.
    """

    namespace: str
    name: str
    labels: Mapping[str, str] = field(compare=False)
    node: str
    priority: int
    assignment: str
    is_started: bool

    @classmethod
    def of(cls, pod: objects.Pod, node: str, assignment: str) -> Placed:
        """As it was seen."""
        metadata = pod.metadata
        return cls(
            metadata.namespace or "",
            metadata.name,
            pod.labels,
            node,
            pod.spec.priority or 0,
            assignment,
            pod.is_started,
        )


class PodSink:
    """Pods that ask for our resources, by UID."""

    def __init__(self, cluster: Cluster) -> None:
        self.is_listed = False
        self._cluster = cluster
        # None: it waits to be bound, or nobody can read which cards it has.
        self._known: dict[str, Placed | None] = {}
        # Bound ones that were told of and could not be taken: node and assignment.
        self._not_taken: dict[str, tuple[str, str | None]] = {}

    def is_placed(self, uid: str) -> bool:
        """Whether the pod is known to have its cards."""
        return self._known.get(uid) is not None

    def knows(self, bound: Bound) -> bool:
        """Whether the watch has told that this pod is bound so.

        Also where its cards could not be taken: then its node is barred, or it has none.
        """
        bound_so = (bound.node, bound.assignment)
        placed = self._known.get(bound.uid)
        if placed is not None and (placed.node, placed.assignment) == bound_so:
            return True
        return self._not_taken.get(bound.uid) == bound_so

    def placed_on(self, nodes: Iterable[str]) -> dict[str, dict[str, Placed]]:
        """By node, the pods that have cards there, by UID."""
        found: dict[str, dict[str, Placed]] = {node: {} for node in nodes}
        for uid, placed in tuple(self._known.items()):
            if placed is not None and placed.node in found:
                found[placed.node][uid] = placed
        return found

    def replace(self, listed: list[objects.Pod], undecoded: Sequence[Undecoded] = ()) -> None:
        """These are all the pods."""
        there = {pod.uid for pod in listed} | {item.metadata.uid for item in undecoded}
        for uid in self._known.keys() - there:
            self._remove(uid)
        for pod in listed:
            self.changed(pod)
        for item in undecoded:
            self.undecoded(item)
        self.is_listed = True

    def changed(self, pod: objects.Pod) -> None:
        """A pod came or changed."""
        if is_over(pod):
            self._remove(pod.uid)
            return
        try:
            self._take(pod)
        except HamiError as error:
            name = f"pod {pod.metadata.namespace}/{pod.metadata.name}"
            self._cluster.unreadable(name, error)
            if pod.spec.node_name is not None:
                text = pod.annotations.get(pods.annotations.ASSIGNMENT)
                self._known[pod.uid] = None
                self._not_taken[pod.uid] = (pod.spec.node_name, text)
                # One that asks for no card was given none, whatever its annotation says.
                if self._asks(pod):
                    why = f"{name} has cards there, and it cannot be read which: {error}"
                    self._cluster.nodes.bar(pod.spec.node_name, pod.uid, why)

    def undecoded(self, item: Undecoded) -> None:
        """A pod is there and cannot be decoded: unless it is over, it has the cards that it had."""
        uid = item.metadata.uid or ""
        if is_over(item):
            self._remove(uid)
            return
        if self._known.get(uid) is not None:
            return
        with contextlib.suppress(msgspec.ValidationError):
            bound = Bound.of(item)
            if bound is not None:
                self._known[uid] = None
                self._not_taken[uid] = (bound.node, bound.assignment)
                why = f"pod {item.name} has cards there and cannot be decoded: {item.why}"
                self._cluster.nodes.bar(bound.node, uid, why)

    def gone(self, pod: objects.Pod | Undecoded) -> None:
        """A pod was deleted."""
        self._remove(pod.metadata.uid or "")

    def _take(self, pod: objects.Pod) -> None:
        if pod.spec.node_name is None:
            self._wait(pod)
            return
        assignment = pods.assignment_of(pod)
        if assignment is None:
            # Bound by somebody else, or not one of ours: it holds no card that we know of.
            self._remove(pod.uid)
            return
        text = pod.annotations[pods.annotations.ASSIGNMENT]
        placed = Placed.of(pod, pod.spec.node_name, text)
        if self._known.get(pod.uid) == placed:
            self._known[pod.uid] = placed
            return
        try:
            request = pods.read_request(pod, self._cluster.settings)
        except InvalidValue as error:
            self._cluster.unreadable(f"pod {pod.metadata.namespace}/{pod.metadata.name}", error)
            request = pods.as_assigned(pod, assignment)
        if request is None:
            raise InvalidValue(
                f"metadata.annotations[{pods.annotations.ASSIGNMENT}]",
                text,
                "the pod asks for no card, so nobody gave it one: leave it out",
            )
        self._cluster.allocator.place(wire.encode(request), wire.encode(assignment), pod.is_started)
        self._cluster.nodes.unbar(pod.uid)
        if self._known.get(pod.uid) is not None:
            # What its init containers had alone may be free.
            self._cluster.waker.changed()
        self._known[pod.uid] = placed
        self._not_taken.pop(pod.uid, None)
        self._cluster.waiting.forget(pod.uid)

    def _wait(self, pod: objects.Pod) -> None:
        request = self._request(pod)
        if request is None:
            return
        self._known.setdefault(pod.uid, None)
        self._cluster.waiting.watched(pod, request)

    def _asks(self, pod: objects.Pod) -> bool:
        try:
            return pods.read_request(pod, self._cluster.settings) is not None
        except InvalidValue:
            return True

    def _request(self, pod: objects.Pod) -> wire.PodRequest | None:
        try:
            return pods.read_request(pod, self._cluster.settings)
        except InvalidValue as error:
            self._cluster.unreadable(f"pod {pod.metadata.namespace}/{pod.metadata.name}", error)
            return None

    def _remove(self, uid: str) -> None:
        self._cluster.waiting.forget(uid)
        # Also of one that the watch tells of for the first time: we may have bound it since.
        self._cluster.allocator.remove(uid)
        self._not_taken.pop(uid, None)
        if uid in self._known:
            del self._known[uid]
            self._cluster.nodes.unbar(uid)
            self._cluster.waker.changed()
