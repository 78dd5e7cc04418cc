"""Pods that are not bound yet: what they request, and the size of their annotations.

kube-scheduler's bind request only names a pod. So the extender keeps what the watch and the filter
have seen of each pod until it is bound. The watch also reports when a pod is deleted. A pod that
only a filter has seen may be deleted or outside the watch's selector without notice, so only the
latest of these are kept. If a pod is no longer here, the binder reads it from the API server.
"""

from __future__ import annotations

import re
import threading
from collections import Counter, OrderedDict
from dataclasses import dataclass

from hami_py.kube import MOST_BYTES, annotation_bytes, check_annotations
from hami_py.model import pods
from hami_py.model.pods import objects, wire
from hami_py.model.pods.annotations import LABELS

_MOST_FILTERED = 1024
"""Pods kept from filters alone. kube-scheduler filters one pod at a time and has some dozens
between filter and bind."""


@dataclass(frozen=True)
class WaitingPod:
    """A pod that is not bound yet.

    Attributes:
        annotated: the size of its annotations in bytes.
        is_labelled: whether it has the label by which the watch selects pods.
        unscheduled: the condition that says why the last attempt to schedule it failed, if any.
        is_terminating: whether it is being deleted, so that it will never be bound.
    """

    request: wire.PodRequest
    annotated: int
    is_labelled: bool
    unscheduled: objects.Condition | None
    nominated: str | None
    is_terminating: bool
    created_s: float | None
    reason: str

    @classmethod
    def of(cls, pod: objects.Pod, request: wire.PodRequest) -> WaitingPod:
        """The pod as it is now."""
        is_terminating = pod.metadata.deletion_timestamp is not None
        annotated = annotation_bytes(pod.annotations)
        is_labelled = LABELS.items() <= pod.labels.items()
        return cls(
            *(request, annotated, is_labelled, pod.unscheduled, pod.nominated, is_terminating),
            created_s=objects.unix_time(pod.metadata.creation_timestamp),
            reason=reason_of(pod.unscheduled),
        )


@dataclass(frozen=True)
class Wait:
    """The pods that wait for one reason."""

    count: int = 0
    longest_s: float = 0.0

    def plus(self, seconds: float) -> Wait:
        """The wait with another pod, which was created so many seconds ago."""
        return Wait(self.count + 1, max(self.longest_s, seconds))


def reason_of(condition: objects.Condition | None) -> str:
    """The reason of most nodes in kube-scheduler's message, such as ``no slot left on its cards``.

    Without the names and numbers in it, so that there are few different reasons. kube-scheduler
    writes ``0/5 nodes are available: 3 REASON, 2 REASON. preemption: …``.
    """
    if condition is None:
        return "not tried yet"
    if condition.reason == "SchedulingGated":
        return "it has scheduling gates"
    found = _MESSAGE.match(condition.message or "")
    counts: Counter[str] = Counter()
    for number, text in _OF_NODES.findall(found[1]) if found else ():
        reason = "a quota is reached" if "quota " in text else _NAMES.sub("…", text)
        counts[reason] += int(number)
    return min(counts, key=lambda reason: (-counts[reason], reason), default="other")


_MESSAGE = re.compile(r"0/\d+ nodes are available: (.*?)\.?(?: preemption: .*|$)", re.DOTALL)
# A quota's reason has a comma itself: `… in use, 2 requested`.
_OF_NODES = re.compile(r"(\d+) (.+?)(?=, \d+ (?!requested)|$)")
_NAMES = re.compile(r"\d+|(?<= bound to node ).*")


def check_room(pod: objects.Pod, request: wire.PodRequest) -> None:
    """Checks that a binding's annotations fit beside those that the pod has.

    Otherwise the pod would be filtered again and again and could never be bound.

    Raises:
        InvalidValue: they do not fit, or may not fit with some cards.
    """
    present = annotation_bytes(pod.annotations)
    # A binding never writes more than half of what an object may have.
    if present > MOST_BYTES // 2:
        check_annotations(present, pods.longest_annotations(request))


class WaitingPods:
    """The pods that are not bound yet. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: dict[str, WaitingPod] = {}
        self._filtered: OrderedDict[str, WaitingPod] = OrderedDict()

    def __len__(self) -> int:
        return len(self._watched) + len(self._filtered)

    def watched(self, pod: objects.Pod, request: wire.PodRequest) -> None:
        """Keeps a pod that the watch reports, until the watch reports its deletion."""
        with self._lock:
            self._filtered.pop(pod.uid, None)
            self._watched[pod.uid] = WaitingPod.of(pod, request)

    def filtered(self, pod: objects.Pod, request: wire.PodRequest) -> None:
        """Keeps a pod that kube-scheduler filters nodes for."""
        with self._lock:
            if pod.uid in self._watched:
                return
            self._filtered[pod.uid] = WaitingPod.of(pod, request)
            self._filtered.move_to_end(pod.uid)
            if len(self._filtered) > _MOST_FILTERED:
                self._filtered.popitem(last=False)

    def find(self, uid: str) -> WaitingPod | None:
        """The pod, if it is kept here."""
        with self._lock:
            return self._watched.get(uid) or self._filtered.get(uid)

    def as_watched(self, uid: str) -> WaitingPod | None:
        """The pod as the watch reported it last, if it did."""
        with self._lock:
            return self._watched.get(uid)

    def reasons(self, now_s: float) -> dict[str, Wait]:
        """By reason, the pods that the watch reports and that are not being deleted.

        ``now_s`` is the Unix time.
        """
        with self._lock:
            there = [*self._watched.values()]
        found: dict[str, Wait] = {}
        for pod in there:
            if not pod.is_terminating:
                seconds = 0.0 if pod.created_s is None else max(0.0, now_s - pod.created_s)
                found[pod.reason] = found.get(pod.reason, Wait()).plus(seconds)
        return found

    def forget(self, uid: str) -> None:
        """Removes a pod that is bound or deleted."""
        with self._lock:
            self._watched.pop(uid, None)
            self._filtered.pop(uid, None)
