"""Pods that request our resources.

A bound pod with a valid assignment is placed in the allocator. A pod that is not bound waits. A
bound pod whose assignment is invalid blocks its node for new pods.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from hami_py.cluster.bound import Bound, is_over
from hami_py.cluster.nodes import NodeSink
from hami_py.cluster.preemptors import Preemptors
from hami_py.cluster.shared import SharedState
from hami_py.cluster.waiting import WaitingPods
from hami_py.errors import HamiError, InvalidValue
from hami_py.kube import Undecoded
from hami_py.model import pods
from hami_py.model.pods import objects, wire


@dataclass(frozen=True, slots=True)
class Placed:
    """A pod that has its cards, as the watch last reported it.

    Attributes:
        labels: its labels; if only they change, the cards stay the same.
        assignment: its cards, as the text of the annotation.
        is_started: whether its ordinary init containers have ended for good.
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
        """The pod as it is now."""
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
    """Pods that request our resources, by UID."""

    def __init__(
        self,
        shared: SharedState,
        nodes: NodeSink,
        waiting: WaitingPods,
        preemptors: Preemptors,
    ) -> None:
        self.is_listed = False
        self._shared = shared
        self._nodes = nodes
        self._waiting = waiting
        self._preemptors = preemptors
        # None: the pod waits to be bound, or its cards are not known.
        self._known: dict[str, Placed | None] = {}
        # Bound pods whose cards are not known: node and assignment.
        self._not_taken: dict[str, tuple[str, str | None]] = {}

    def is_placed(self, uid: str) -> bool:
        """Whether the allocator has this pod with its cards."""
        return self._known.get(uid) is not None

    def knows(self, bound: Bound) -> bool:
        """Whether the watch has reported this node and this assignment for the pod.

        That includes a pod whose cards are not known: then its node is blocked.
        """
        expected = (bound.node, bound.assignment)
        placed = self._known.get(bound.uid)
        if placed is not None and (placed.node, placed.assignment) == expected:
            return True
        return self._not_taken.get(bound.uid) == expected

    def placed_on(self, nodes: Iterable[str]) -> dict[str, dict[str, Placed]]:
        """By node, the pods that have cards there, by UID."""
        found: dict[str, dict[str, Placed]] = {node: {} for node in nodes}
        for uid, placed in tuple(self._known.items()):
            if placed is not None and placed.node in found:
                found[placed.node][uid] = placed
        return found

    def replace(self, listed: list[objects.Pod], undecoded: Sequence[Undecoded] = ()) -> None:
        """Takes a whole list of pods; pods that are not in it were deleted."""
        there = {pod.uid for pod in listed} | {item.metadata.uid for item in undecoded}
        for uid in self._known.keys() - there:
            self._remove(uid)
        for pod in listed:
            self.changed(pod)
        for item in undecoded:
            self.undecoded(item)
        self.is_listed = True

    def changed(self, pod: objects.Pod) -> None:
        """Takes a pod that is new or changed."""
        if is_over(pod):
            self._remove(pod.uid)
            return
        if pod.metadata.deletion_timestamp is not None:
            self._preemptors.terminates(pod.uid)
        try:
            self._take(pod)
        except HamiError as error:
            name = _name(pod)
            self._shared.report_invalid(name, error)
            if pod.spec.node_name is not None:
                text = pod.annotations.get(pods.annotations.ASSIGNMENT)
                self._known[pod.uid] = None
                self._not_taken[pod.uid] = (pod.spec.node_name, text)
                # A pod that requests no card has none, whatever its annotation contains.
                if self._requests_card(pod):
                    why = f"{name} has cards there, and its assignment is invalid: {error}"
                    self._nodes.block(pod.spec.node_name, pod.uid, why, error)

    def undecoded(self, item: Undecoded) -> None:
        """Takes a pod that cannot be decoded: unless it has ended, it keeps the cards it had."""
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
                self._nodes.block(bound.node, uid, why)

    def deleted(self, pod: objects.Pod | Undecoded) -> None:
        """Takes the deletion of a pod."""
        self._remove(pod.metadata.uid or "")

    def _take(self, pod: objects.Pod) -> None:
        if pod.spec.node_name is None:
            self._wait(pod)
            return
        assignment = pods.assignment_of(pod)
        if assignment is None:
            # Another scheduler bound it, or it is not one of ours: no card of it is known.
            self._remove(pod.uid)
            return
        text = pod.annotations[pods.annotations.ASSIGNMENT]
        placed = Placed.of(pod, pod.spec.node_name, text)
        if self._known.get(pod.uid) == placed:
            self._known[pod.uid] = placed
            return
        try:
            request = pods.read_request(pod, self._shared.settings)
        except InvalidValue as error:
            self._shared.report_invalid(_name(pod), error)
            request = pods.as_assigned(pod, assignment)
        if request is None:
            raise InvalidValue(
                f"metadata.annotations[{pods.annotations.ASSIGNMENT}]",
                text,
                "the pod requests no card, so it has none: remove the annotation",
            )
        self._shared.allocator.place(wire.encode(request), wire.encode(assignment), pod.is_started)
        self._nodes.unblock(pod.uid)
        if self._known.get(pod.uid) is not None:
            # The cards that only its init containers used may be free now.
            self._shared.requeuer.changed()
        self._known[pod.uid] = placed
        self._not_taken.pop(pod.uid, None)
        self._waiting.forget(pod.uid)
        self._preemptors.forget(pod.uid)

    def _wait(self, pod: objects.Pod) -> None:
        try:
            request = pods.read_request(pod, self._shared.settings)
        except InvalidValue as error:
            self._shared.report_invalid(_name(pod), error)
            return
        if request is not None:
            self._known.setdefault(pod.uid, None)
            self._waiting.watched(pod, request)

    def _requests_card(self, pod: objects.Pod) -> bool:
        try:
            return pods.read_request(pod, self._shared.settings) is not None
        except InvalidValue:
            return True

    def _remove(self, uid: str) -> None:
        self._waiting.forget(uid)
        self._preemptors.forget(uid)
        self._preemptors.is_gone(uid)
        # Even if the watch has never reported the pod before: this extender may have bound it.
        self._shared.allocator.remove(uid)
        self._not_taken.pop(uid, None)
        if uid in self._known:
            del self._known[uid]
            self._nodes.unblock(uid)
            self._shared.requeuer.changed()


def _name(pod: objects.Pod) -> str:
    return f"pod {pod.metadata.namespace}/{pod.metadata.name}"
