"""Holds: cards kept for a pod in memory, from its scoring to its binding, and where.

Most holds last for seconds, because kube-scheduler binds at once. But before it binds a pod that
claims volumes or devices, it waits until those are bound, for up to ten minutes, and counts the pod
as placed meanwhile. So the extender holds the cards for that time. From Kubernetes 1.35 on,
kube-scheduler also writes into the pod which node it waits for (``nominatedNodeName``); that need
not be the node that scored best here.

kube-scheduler does not tell the extender that it has given up an attempt. There are two signs: it
filters nodes for the pod again, or the pod's status changes (the nominated node is removed, or the
condition PodScheduled turns False or gets another text). A status that was there before the hold
began, or before the node was nominated, belongs to an earlier attempt.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from hami_py.cluster.state import Cluster
from hami_py.cluster.waiting import WaitingPod
from hami_py.model.pods import objects, wire
from hami_py.scheduler.settings import Timing


@dataclass
class _LongHold:
    """The hold of a pod with claims.

    Attributes:
        failures: the conditions of earlier attempts.
        nominations: the nodes of earlier attempts.
        node: the node that kube-scheduler has nominated since, if any.
    """

    began_ns: int
    failures: tuple[objects.Condition | None, ...]
    nominations: tuple[str | None, ...]
    node: str | None = None

    def is_given_up(self, pod: WaitingPod) -> bool:
        """Whether the pod's status shows that kube-scheduler has given up this attempt."""
        if self.node is not None and pod.nominated is None:
            return True
        return pod.unscheduled is not None and pod.unscheduled not in self.failures


class Holds:
    """Begins holds, and ends them when they expire or are given up. Threads may share it.

    The requeuer is notified of each end, because kube-scheduler has no event for it.

    Attributes:
        short_ns: the nanoseconds that a short hold lasts. A pod that fits only without such a hold
            is tried again.
    """

    def __init__(self, cluster: Cluster, timing: Timing, clock_ns: Callable[[], int]) -> None:
        self._cluster = cluster
        self.short_ns = int(timing.hold_s * 1e9)
        self._long_ns = self.short_ns + int(timing.claims_s * 1e9)
        self._freed_ns = int(timing.freed_s * 1e9)
        self._clock_ns = clock_ns
        self._lock = threading.Lock()
        self._long: dict[str, _LongHold] = {}
        self._expired = 0

    def begin(self, pod: objects.Pod) -> int:
        """Begins a hold; returns the nanoseconds that the allocator has to hold the cards."""
        if not pod.claims:
            return self.short_ns
        # The watch may be ahead of kube-scheduler or behind it.
        watched = self._cluster.waiting.as_watched(pod.uid) or pod
        failures = (pod.unscheduled, watched.unscheduled)
        nominations = (pod.nominated, watched.nominated)
        with self._lock:
            self._long[pod.uid] = _LongHold(self._clock_ns(), failures, nominations)
        return self._long_ns

    def end(self, uid: str) -> None:
        """Ends the long hold of a pod whose earlier attempt has failed."""
        with self._lock:
            if self._long.pop(uid, None) is not None:
                # The requeuer is notified even if the cards are reserved by now and stay so: then
                # the binding has failed.
                self._end(uid)

    def _end(self, uid: str) -> None:
        self._cluster.allocator.end_hold(uid)
        self._cluster.requeuer.changed()

    def expire(self) -> None:
        """Ends holds that are over, and moves long ones to the nodes that were nominated.

        A long hold does not end in its first seconds: until then the pod's status may still be that
        of an earlier attempt.
        """
        now_ns = self._clock_ns()
        expired = self._cluster.allocator.expire(now_ns)
        with self._lock:
            if expired != self._expired:
                self._expired = expired
                self._cluster.requeuer.changed()
            for uid, hold in tuple(self._long.items()):
                left_ns = hold.began_ns + self._long_ns - now_ns
                pod = self._cluster.waiting.as_watched(uid)
                # If the watch does not follow the pod, its deletion would go unnoticed.
                is_idle = pod is None or pod.is_terminating or hold.is_given_up(pod)
                if left_ns <= 0 or (is_idle and now_ns - hold.began_ns >= self.short_ns):
                    del self._long[uid]
                    if not self._cluster.pods.is_placed(uid):
                        self._end(uid)
                elif pod is not None:
                    self._follow(hold, pod, now_ns, left_ns)
        self._cluster.preemptors.expire(now_ns, self._freed_ns)

    def _follow(self, hold: _LongHold, pod: WaitingPod, now_ns: int, left_ns: int) -> None:
        node = pod.nominated
        if node is None or node == hold.node or node in hold.nominations:
            return
        hold.node = node
        # kube-scheduler waits for the pod's claims now, so its condition is an earlier attempt's.
        hold.failures = (*hold.failures, pod.unscheduled)
        allocator = self._cluster.allocator
        allocator.end_hold(pod.request.pod.uid)
        allocator.prioritize_names(
            wire.encode(pod.request), msgspec.json.encode([node]), now_ns, left_ns
        )
        self._cluster.requeuer.changed()
