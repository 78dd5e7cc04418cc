"""Measures how long pods with cards take to start: from their creation to their first program."""

from __future__ import annotations

from collections.abc import Iterable

from hami_py.agent.pods import NodePod
from hami_py.model.pods.annotations import ASSIGNMENT
from hami_py.model.pods.objects import unix_time
from hami_py.monitor import Starts

_BOUNDS_S = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
"""The API server's times have whole seconds; a pod may wait for a card for hours."""


class StartTimes:
    """Counts each pod once.

    Pods that had started before the first look are left out: an earlier agent has counted them.
    """

    def __init__(self) -> None:
        self._seen: set[str] | None = None
        self._counts = dict.fromkeys(_BOUNDS_S, 0)
        self._count, self._total_s = 0, 0.0

    def look(self, pods: Iterable[NodePod]) -> None:
        """Look which pods have started."""
        there = [pod for pod in pods if ASSIGNMENT in pod.annotations]
        started = {pod.uid: seconds for pod in there if (seconds := _seconds(pod)) is not None}
        if self._seen is not None:
            for uid in started.keys() - self._seen:
                self._add(started[uid])
        # Pods that are deleted are forgotten.
        self._seen = set(started)

    def figures(self) -> Starts:
        """All so far."""
        counts = {float(most): count for most, count in self._counts.items()}
        return Starts(counts, self._count, self._total_s)

    def _add(self, seconds: float) -> None:
        self._count += 1
        self._total_s += seconds
        for most in self._counts:
            self._counts[most] += seconds <= most


def _seconds(pod: NodePod) -> float | None:
    """The time from its creation to its first container's start; ``None``: none has started."""
    starts = [unix_time(text) for text in pod.started_at]
    created = unix_time(pod.created_at)
    known = [start for start in starts if start is not None]
    return max(0.0, min(known) - created) if known and created is not None else None
