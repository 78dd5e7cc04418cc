"""How long cards are held for a pod, in memory only, from its score to its binding, and where.

Seconds for most: kube-scheduler binds at once. But before it binds a pod that claims volumes or
devices it waits until those are bound, ten minutes if need be, and counts the pod as placed all the
while; so do we. From 1.35 on it also writes into the pod which node it waits for
(``nominatedNodeName``), which need not be the one that we found best.

That it has given up it does not say in so many words. It asks anew, or it writes so into the pod:
the node is removed, the condition PodScheduled turns False or gets another text. What was written
there when the hold began, or when the node was named, is of an earlier attempt.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from hami_py.model.pods import objects, wire
from hami_py.scheduler.cluster import Cluster
from hami_py.scheduler.timing import Timing
from hami_py.scheduler.waiting import WaitingPod

__all__ = ["Holds"]


@dataclass
class _Hold:
    """A long one.

    Attributes:
        began_ns: when.
        failures: why earlier attempts failed.
        nominations: nodes of earlier attempts.
        node: the one that kube-scheduler waits for, if it says so.
    """

    began_ns: int
    failures: tuple[objects.Condition | None, ...]
    nominations: tuple[str | None, ...]
    node: str | None = None

    def is_given_up(self, pod: WaitingPod) -> bool:
        """Whether kube-scheduler says so."""
        if self.node is not None and pod.nominated is None:
            return True
        return pod.unscheduled is not None and pod.unscheduled not in self.failures


class Holds:
    """Follows the long ones, and ends the others when their time is over. Threads may share it.

    The waker is told of each end: pods were refused for it, and hear of it from nobody else.

    Attributes:
        short_ns: nanoseconds that a short one lasts; who waits for one of those is tried again.
    """

    def __init__(self, cluster: Cluster, timing: Timing, clock_ns: Callable[[], int]) -> None:
        self._cluster = cluster
        self.short_ns = int(timing.hold_s * 1e9)
        self._long_ns = self.short_ns + int(timing.claims_s * 1e9)
        self._clock_ns = clock_ns
        self._lock = threading.Lock()
        self._long: dict[str, _Hold] = {}
        self._expired = 0

    def begin(self, pod: objects.Pod) -> int:
        """For how many nanoseconds cards are to be held for a pod, from now on."""
        if not pod.claims:
            return self.short_ns
        # The watch may be ahead of kube-scheduler, or behind it.
        watched = self._cluster.waiting.as_watched(pod.uid) or pod
        failures = (pod.unscheduled, watched.unscheduled)
        nominations = (pod.nominated, watched.nominated)
        with self._lock:
            self._long[pod.uid] = _Hold(self._clock_ns(), failures, nominations)
        return self._long_ns

    def end(self, uid: str) -> None:
        """kube-scheduler has begun anew with a pod: what is held is of an attempt that failed."""
        with self._lock:
            if self._long.pop(uid, None) is not None:
                # The waker is told also where the cards are reserved by now, and stay so: the
                # binding has failed.
                self._end(uid)

    def _end(self, uid: str) -> None:
        self._cluster.allocator.unhold(uid)
        self._cluster.waker.changed()

    def settle(self) -> None:
        """Ends what is over, and follows kube-scheduler to the nodes that it has chosen.

        In its first seconds no hold ends: what is told then may be an earlier attempt's.
        """
        now_ns = self._clock_ns()
        expired = self._cluster.allocator.expire(now_ns)
        with self._lock:
            if expired != self._expired:
                self._expired = expired
                self._cluster.waker.changed()
            for uid, hold in tuple(self._long.items()):
                left_ns = hold.began_ns + self._long_ns - now_ns
                pod = self._cluster.waiting.as_watched(uid)
                # Of a pod that the watch does not tell of nobody would hear that it is gone.
                is_idle = pod is None or pod.is_going or hold.is_given_up(pod)
                if left_ns <= 0 or (is_idle and now_ns - hold.began_ns >= self.short_ns):
                    del self._long[uid]
                    if not self._cluster.pods.is_placed(uid):
                        self._end(uid)
                elif pod is not None:
                    self._follow(hold, pod, now_ns, left_ns)

    def _follow(self, hold: _Hold, pod: WaitingPod, now_ns: int, left_ns: int) -> None:
        node = pod.nominated
        if node is None or node == hold.node or node in hold.nominations:
            return
        hold.node = node
        # It is waited for now, so what has been written by then is why an earlier attempt failed.
        hold.failures = (*hold.failures, pod.unscheduled)
        allocator = self._cluster.allocator
        allocator.unhold(pod.request.pod.uid)
        allocator.prioritize_names(
            wire.encode(pod.request), msgspec.json.encode([node]), now_ns, left_ns
        )
        self._cluster.waker.changed()
