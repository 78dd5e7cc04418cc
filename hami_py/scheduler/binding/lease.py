"""kube-scheduler's lease: which replica is the leader, and since when.

A leader that shuts down releases its lease, and the next one acquires it within a second, while a
binding of the previous one may still be on its way (tests/cluster/findings.md). So the extender
of a new leader waits as long as a binding may take and a write without an answer may take effect
(``Timing.handover_s``). A kube-scheduler that was stopped for a while may also send requests
without knowing that another replica has taken over. So the lease is read for each binding, after
its request arrived. If our kube-scheduler holds it then, any later leader waits until that binding
has ended.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime
from math import ceil
from typing import Annotated, TypeAlias
from urllib.parse import quote

import msgspec

from hami_py.kube import ApiServer
from hami_py.kube.errors import NotFound, Unavailable

_log = logging.getLogger(__name__)

_SET_S = 1.0
"""If the time of day changes by more against the monotonic clock, it was set. Slewing changes it
by some ms per second."""

_Time: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]

Tenure: TypeAlias = tuple[str, datetime | None, int]
"""The holder, when it acquired the lease, and the number of transitions before. A lease that was
deleted and created again counts from 0, so no single field identifies a tenure."""


class _Spec(msgspec.Struct, rename="camel", frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: _Time | None = None
    renew_time: _Time | None = None
    lease_transitions: int | None = None

    @property
    def host(self) -> str:
        """The holder's host: kube-scheduler's identity is ``<hostname>_<uuid>``."""
        return (self.holder_identity or "").rpartition("_")[0]

    @property
    def tenure(self) -> Tenure:
        return self.holder_identity or "", self.acquire_time, self.lease_transitions or 0


class _Lease(msgspec.Struct):
    """``coordination.k8s.io/v1`` Lease: the fields that we read."""

    spec: _Spec


class Lease:
    """A lease that is checked for each binding. Threads may share it.

    Args:
        holder: the name of the host that our kube-scheduler runs on; in one pod, our own.
        wait_s: how long the holder must have held it before a binding.
        wall_s: the time of day by the holder's clock, in seconds; ``None``: not known here, because
            the holder runs on another host.
    """

    def __init__(
        self,
        server: ApiServer,
        name: tuple[str, str],
        *,
        holder: str,
        wait_s: float,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        wall_s: Callable[[], float] | None = None,
    ) -> None:
        # Errors are shown on pods, whose authors know no API paths.
        self._called = f"kube-scheduler's lease {'/'.join(name)}"
        namespace, lease = (quote(part, safe="") for part in name)
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{lease}"
        self._server = server
        self._holder = holder
        self._wait_s = wait_s
        self._clock_ns = clock_ns
        self._wall_s = wall_s
        self._ahead_s = self._measure_ahead()
        # Held during the read, so that threads that wait for it use the same answer.
        self._lock = threading.Lock()
        self._read_ns: int | None = None
        self._spec: _Spec | None = None
        # When this spec was first seen, and when its holder was first seen to hold the lease.
        self._changed_ns = 0
        self._acquired_ns = 0
        # When the lease was first found missing, if it has never been there.
        self._missing_ns: int | None = None
        self._has_warned = False

    def check(self, began_ns: int, left_s: Callable[[], float]) -> Tenure | None:
        """Checks that our kube-scheduler holds the lease, and has held it for long enough.

        Returns:
            The tenure; ``None``: there is no lease.

        Raises:
            Unavailable: another replica holds it, the previous holder may still be writing, or the
                lease cannot be read.
        """
        if not self._lock.acquire(timeout=left_s()):
            raise self._unavailable("it could not be read in time", "try again later")
        try:
            if self._read_ns is None or self._read_ns < began_ns:
                self._read(left_s())
            return self._check_holder()
        finally:
            self._lock.release()

    def _read(self, deadline_s: float) -> None:
        requested_ns = self._clock_ns()
        try:
            answer = self._server.get(self._path, deadline_s=deadline_s)
        except NotFound as error:
            if self._spec is not None:
                # kube-scheduler creates it again within seconds.
                raise self._unavailable("it was deleted", "try again in a moment") from error
            self._read_ns = requested_ns
            if self._missing_ns is None:
                self._missing_ns = requested_ns
            return
        try:
            spec = msgspec.json.decode(answer, type=_Lease).spec
        except msgspec.DecodeError as error:
            raise self._unavailable(f"it is invalid: {error}", "correct it") from error
        # It was acquired before the answer came; a later renewal changes the spec again.
        if self._spec is None or self._spec.tenure != spec.tenure:
            self._acquired_ns = self._clock_ns()
        if self._spec != spec:
            self._changed_ns = requested_ns
        self._spec, self._read_ns = spec, requested_ns

    def _check_holder(self) -> Tenure | None:
        spec = self._spec
        if spec is None:
            missing_s = (self._clock_ns() - (self._missing_ns or 0)) / 1e9
            if missing_s < self._wait_s:
                # It may have been deleted before the first read, while a replica held it.
                raise self._unavailable(
                    f"it was first found missing {missing_s:.1f} s ago, and for {self._wait_s:g} s "
                    "its last holder may still be binding",
                    "try again in a moment; if there is no lease, run the extender without --lease",
                )
            # kube-scheduler runs without leader election, so it has only one replica.
            if not self._has_warned:
                self._has_warned = True
                _log.warning(
                    "%s: there is no such lease, so pods are bound as if this were the only "
                    "replica; check that --lease names kube-scheduler's own lease",
                    self._path,
                )
            return None
        if spec.host != self._holder:
            raise self._unavailable(
                f"{spec.holder_identity or 'no replica'} holds it, not the kube-scheduler on "
                f"{self._holder}",
                "try again later; if that kube-scheduler uses this extender, run the extender with "
                "--lease-holder and the name of its host",
            )
        unchanged_s = ((self._read_ns or 0) - self._changed_ns) / 1e9
        lasts_s = spec.lease_duration_seconds
        if lasts_s is not None and unchanged_s > lasts_s:
            raise self._unavailable(
                f"kube-scheduler has not renewed it for {unchanged_s:.1f} s; it expires after "
                f"{lasts_s} s",
                "try again later",
            )
        held_s = (self._clock_ns() - self._acquired_ns) / 1e9
        if self._wall_s is not None and spec.acquire_time is not None and lasts_s is not None:
            # An extender that has just started need not wait if kube-scheduler has held the lease
            # for long. kube-scheduler notes the time before it acquires the lease, and gives up an
            # attempt that takes as long as a lease lasts.
            noted_s = self._wall_s() - spec.acquire_time.timestamp()
            # After the time of day was set, the noted time is useless.
            if abs(self._measure_ahead() - self._ahead_s) < _SET_S:
                held_s = max(held_s, noted_s - lasts_s)
        if held_s < self._wait_s:
            raise Unavailable(
                "a new scheduler has just taken over",
                "the previous one may still be binding",
                f"the pod is tried again in {ceil(self._wait_s - held_s)} s",
            )
        return spec.tenure

    def _measure_ahead(self) -> float:
        """How far the time of day is ahead of the monotonic clock."""
        return self._wall_s() - self._clock_ns() / 1e9 if self._wall_s is not None else 0.0

    def _unavailable(self, why: str, fix: str) -> Unavailable:
        return Unavailable(self._called, why, fix)
