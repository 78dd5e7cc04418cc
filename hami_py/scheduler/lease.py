"""The lease under which one kube-scheduler of several works, and since when its holder has it.

A holder that is told to end gives its lease back, and the next one has it within a second, while a
binding of the one before may still be on its way (docs/kubernetes-findings.md). So who begins waits
for as long as a binding may take.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime
from urllib.parse import quote

import msgspec

from hami_py.kube import ApiServer
from hami_py.kube.errors import NotFound, Unavailable

__all__ = ["Lease"]


class _Spec(msgspec.Struct, rename="camel"):
    acquire_time: datetime | None = None
    lease_transitions: int = 0


class _Lease(msgspec.Struct):
    """``coordination.k8s.io/v1`` Lease, as far as it matters here."""

    spec: _Spec


class Lease:
    """A lease, looked at when somebody begins. Threads may share it.

    Args:
        server: where it is.
        place: its namespace and name.
        wait_s: how long its holder has to have had it.
        wall_s: the time of day, in seconds: the holder, in the same pod, has the same clock.
    """

    def __init__(
        self,
        server: ApiServer,
        place: tuple[str, str],
        wait_s: float,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        namespace, name = map(quote, place)
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
        self._server = server
        self._wait_s = wait_s
        self._wall_s = wall_s
        self._lock = threading.Lock()
        # Which holder was seen, and when first.
        self._seen: tuple[int, int] | None = None

    def check(self, now_ns: int, deadline_s: float) -> None:
        """Whether the holder before has had its time.

        Raises:
            Unavailable: it may still be writing, or that cannot be told.
        """
        try:
            answer = self._server.get(self._path, deadline_s=deadline_s)
        except NotFound:
            # kube-scheduler runs without one, so there is no other.
            return
        try:
            spec = msgspec.json.decode(answer, type=_Lease).spec
        except msgspec.DecodeError as error:
            raise Unavailable(self._path, f"it cannot be read: {error}", "look at it") from error
        taken = spec.acquire_time
        held_s = self._wall_s() - taken.timestamp() if taken is not None else 0.0
        with self._lock:
            if self._seen is None or self._seen[0] != spec.lease_transitions:
                self._seen = (spec.lease_transitions, now_ns)
            # Where the clocks differ, it was at least seen for so long.
            held_s = max(held_s, (now_ns - self._seen[1]) / 1e9)
        if held_s < self._wait_s:
            raise Unavailable(
                self._path,
                f"kube-scheduler has had it for {max(0.0, held_s):.1f} s, and until "
                f"{self._wait_s:g} s the one before may still be binding",
                "try again in a moment",
            )
