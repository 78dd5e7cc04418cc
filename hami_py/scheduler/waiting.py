"""Pods that are to be bound, by UID: what they ask for, and what they have of annotations.

kube-scheduler's request to bind names a pod and no more, so what the watch and the filter have seen
of it is kept until then. What the watch tells of, it also takes back. What only a filter has seen
may be a pod that is gone, or that the watch does not follow: of those the last few are kept, and
whose request is not here any more is read from the API server when it is bound.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from hami_py.kube import MOST_BYTES, annotation_bytes, check_annotations
from hami_py.model import pods
from hami_py.model.pods import objects, wire
from hami_py.model.pods.annotations import LABELS

__all__ = ["Waiting", "WaitingPod", "check_room"]

_ASKED = 1024
"""Pods remembered from filters alone: kube-scheduler filters one at a time, and has some dozens
between filter and bind."""


@dataclass(frozen=True)
class WaitingPod:
    """A pod that is to be bound.

    Attributes:
        request: what it asks for.
        annotated: bytes of its annotations.
        is_labelled: it has the label by which the webhook lets it be followed.
        unscheduled: why the last attempt to schedule it failed, if one has.
        nominated: the node that kube-scheduler has in mind for it, if it says so.
        is_going: it is being deleted, and will never be bound.
    """

    request: wire.PodRequest
    annotated: int
    is_labelled: bool
    unscheduled: objects.Condition | None
    nominated: str | None
    is_going: bool

    @classmethod
    def of(cls, pod: objects.Pod, request: wire.PodRequest) -> WaitingPod:
        """As it was seen."""
        is_going = pod.metadata.deletion_timestamp is not None
        annotated = annotation_bytes(pod.annotations)
        is_labelled = LABELS.items() <= pod.labels.items()
        return cls(request, annotated, is_labelled, pod.unscheduled, pod.nominated, is_going)


def check_room(pod: objects.Pod, request: wire.PodRequest) -> None:
    """Whether a binding's annotations can be written beside those that the pod has.

    Else it would be filtered and held again and again, and bound never.

    Raises:
        InvalidValue: there is no room, or may be none with some cards.
    """
    present = annotation_bytes(pod.annotations)
    # More than half is never ours.
    if present > MOST_BYTES // 2:
        check_annotations(present, pods.longest_annotations(request))


class Waiting:
    """All of them. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: dict[str, WaitingPod] = {}
        self._asked: OrderedDict[str, WaitingPod] = OrderedDict()

    def __len__(self) -> int:
        return len(self._watched) + len(self._asked)

    def watched(self, pod: objects.Pod, request: wire.PodRequest) -> None:
        """The watch tells of it, and will tell when it is gone."""
        with self._lock:
            self._asked.pop(pod.uid, None)
            self._watched[pod.uid] = WaitingPod.of(pod, request)

    def asked(self, pod: objects.Pod, request: wire.PodRequest) -> None:
        """kube-scheduler asks where it fits."""
        with self._lock:
            if pod.uid in self._watched:
                return
            self._asked[pod.uid] = WaitingPod.of(pod, request)
            self._asked.move_to_end(pod.uid)
            if len(self._asked) > _ASKED:
                self._asked.popitem(last=False)

    def find(self, uid: str) -> WaitingPod | None:
        """The pod, if it is still here."""
        with self._lock:
            return self._watched.get(uid) or self._asked.get(uid)

    def as_watched(self, uid: str) -> WaitingPod | None:
        """The pod as the watch has told of it, if it has."""
        with self._lock:
            return self._watched.get(uid)

    def forget(self, uid: str) -> None:
        """It is bound, or gone."""
        with self._lock:
            self._watched.pop(uid, None)
            self._asked.pop(uid, None)
