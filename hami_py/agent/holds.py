"""Containers that wait at their start, and the end of such a wait.

A container that waits gets an event with the reason. If the kubelet has picked other cards than the
assigned ones, waiting alone may never help: the kubelet keeps its choice for the pod's life. After
30 s such a pod is evicted, if a controller creates another one. A pod without a controller waits
until the cards that it has are free.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import Lock

from hami_py.agent.pods import NodePod

__all__ = ["HeldContainer", "Holds"]

EVICT_AFTER_S = 30.0

_EVICT_PAUSE_S = 10.0
"""Between two evictions on a node: the kubelet may pick better for the next pod."""


@dataclass(frozen=True)
class HeldContainer:
    """A container that waits.

    Attributes:
        pod: the pod's UID.
        container: its name.
        reason: why.
        may_be_evicted: waiting alone may not help.
        since: when it was first held, on the monotonic clock.
    """

    pod: str
    container: str
    reason: str
    may_be_evicted: bool
    since: float


class Holds:
    """The containers that wait. Threads may share it.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._held: dict[tuple[str, str], HeldContainer] = {}
        self._evicted_at = float("-inf")
        self._lock = Lock()

    def all(self) -> list[HeldContainer]:
        """All of them."""
        with self._lock:
            return list(self._held.values())

    def hold(self, pod: str, container: str, reason: str, *, may_be_evicted: bool) -> None:
        """A container has to wait; also if it waits already."""
        with self._lock:
            known = self._held.get((pod, container))
            since = known.since if known is not None else self._clock()
            held = HeldContainer(pod, container, reason, may_be_evicted, since)
            self._held[(pod, container)] = held

    def started(self, pod: str, container: str) -> None:
        """A container does not wait any more."""
        with self._lock:
            self._held.pop((pod, container), None)

    def keep(self, pods: Iterable[str]) -> None:
        """Forget the containers of other pods than these."""
        there = {*pods}
        with self._lock:
            self._held = {key: held for key, held in self._held.items() if key[0] in there}

    def to_evict(self, find: Callable[[str], NodePod | None]) -> NodePod | None:
        """The pod to evict now, if there is one; at most one in ten seconds."""
        now = self._clock()
        with self._lock:
            if now - self._evicted_at < _EVICT_PAUSE_S:
                return None
            for held in sorted(self._held.values(), key=lambda held: held.since):
                pod = find(held.pod)
                late = held.may_be_evicted and now - held.since >= EVICT_AFTER_S
                if late and pod is not None and pod.controller is not None:
                    self._evicted_at = now
                    return pod
        return None
