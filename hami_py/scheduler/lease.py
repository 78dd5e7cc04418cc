"""The lease under which one kube-scheduler of several works: who has it, and since when.

A holder that is told to end gives its lease back, and the next one has it within a second, while a
binding of the one before may still be on its way (docs/kubernetes-findings.md). So who begins waits
for as long as a binding may take, and a write that was given up (``Timing.handover_s``). And a
kube-scheduler that stood still asks on without knowing that another took over. So the lease is read
for each binding, after it was asked for: if it is ours then, whoever takes it later waits until
that binding is over.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, TypeAlias
from urllib.parse import quote

import msgspec

from hami_py.kube import ApiServer
from hami_py.kube.errors import NotFound, Unavailable

__all__ = ["Lease", "Tenure"]

_log = logging.getLogger(__name__)

_SET_S = 1.0
"""A time of day that goes wrong by more was set; else it was slewed, by some ms in a second."""

_Time: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]

Tenure: TypeAlias = tuple[str, datetime | None, int]
"""Whose the lease is, since when, and how many changes were before. One that was deleted and made
anew counts from 0 again, so none of them alone tells two holders apart."""


class _Spec(msgspec.Struct, rename="camel", frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: _Time | None = None
    renew_time: _Time | None = None
    lease_transitions: int | None = None

    @property
    def host(self) -> str:
        """kube-scheduler's: it calls itself ``<hostname>_<uuid>``."""
        return (self.holder_identity or "").rpartition("_")[0]

    @property
    def tenure(self) -> Tenure:
        return self.holder_identity or "", self.acquire_time, self.lease_transitions or 0


class _Lease(msgspec.Struct):
    """``coordination.k8s.io/v1`` Lease, as far as it matters here."""

    spec: _Spec


class Lease:
    """A lease, looked at for each binding. Threads may share it.

    Args:
        server: where it is.
        place: its namespace and name.
        holder: the name of the host that our kube-scheduler runs on; in one pod it is ours.
        wait_s: how long its holder has to have had it.
        clock_ns: the clock by which bindings are asked for.
        wall_s: the time of day by the holder's clock, in seconds; None: it is not known here, as
            where the holder is another host.
    """

    def __init__(
        self,
        server: ApiServer,
        place: tuple[str, str],
        *,
        holder: str,
        wait_s: float,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        wall_s: Callable[[], float] | None = None,
    ) -> None:
        namespace, name = (quote(part, safe="") for part in place)
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
        self._server = server
        self._holder = holder
        self._wait_s = wait_s
        self._clock_ns = clock_ns
        self._wall_s = wall_s
        self._ahead_s = self._measure_ahead()
        # Held while it is read, too: who waits for it meanwhile has the same answer.
        self._lock = threading.Lock()
        self._read_ns: int | None = None
        self._spec: _Spec | None = None
        # When it was first seen as it is, and its holder first seen to have it.
        self._changed_ns = 0
        self._taken_ns = 0
        # When it was first looked for and not there, as long as it has never been.
        self._missing_ns: int | None = None
        self._is_done_without = False

    def check(self, began_ns: int, left_s: Callable[[], float]) -> Tenure | None:
        """Whether our kube-scheduler has it, and the holder before has had its time.

        Args:
            began_ns: when the binding was asked for.
            left_s: of the time for it; raises ``Unavailable``.

        Returns:
            The tenure; None: there is no lease.

        Raises:
            Unavailable: it is another's, the one before may still be writing, or that cannot be
                told.
        """
        if not self._lock.acquire(timeout=left_s()):
            raise self._unavailable("it could not be read in time", "try again later")
        try:
            if self._read_ns is None or self._read_ns < began_ns:
                self._read(left_s())
            return self._judge()
        finally:
            self._lock.release()

    def _read(self, deadline_s: float) -> None:
        asked_ns = self._clock_ns()
        try:
            answer = self._server.get(self._path, deadline_s=deadline_s)
        except NotFound as error:
            if self._spec is not None:
                # Deleted; kube-scheduler makes it anew within seconds.
                raise self._unavailable("it is gone", "try again in a moment") from error
            self._read_ns = asked_ns
            if self._missing_ns is None:
                self._missing_ns = asked_ns
            return
        try:
            spec = msgspec.json.decode(answer, type=_Lease).spec
        except msgspec.DecodeError as error:
            raise self._unavailable(f"it cannot be read: {error}", "look at it") from error
        # It was taken before the answer came; what is renewed later is seen to be another.
        if self._spec is None or self._spec.tenure != spec.tenure:
            self._taken_ns = self._clock_ns()
        if self._spec != spec:
            self._changed_ns = asked_ns
        self._spec, self._read_ns = spec, asked_ns

    def _judge(self) -> Tenure | None:
        spec = self._spec
        if spec is None:
            missing_s = (self._clock_ns() - (self._missing_ns or 0)) / 1e9
            if missing_s < self._wait_s:
                # Or it was deleted before we ever saw it, and somebody had it until then.
                raise self._unavailable(
                    f"it was first missed {missing_s:.1f} s ago, and until {self._wait_s:g} s "
                    "whoever had it may still be binding",
                    "try again in a moment; if there is none, run the extender without --lease",
                )
            # kube-scheduler runs without one, so there is no other.
            if not self._is_done_without:
                self._is_done_without = True
                _log.warning(
                    "%s: there is no such lease, so pods are bound as if this were the only "
                    "replica; look whether --lease names kube-scheduler's own",
                    self._path,
                )
            return None
        if spec.host != self._holder:
            raise self._unavailable(
                f"{spec.holder_identity or 'nobody'} has it, and not the kube-scheduler on "
                f"{self._holder}",
                "try again later; if that one asks this extender, run it with --lease-holder and "
                "the name of its host",
            )
        still_s = ((self._read_ns or 0) - self._changed_ns) / 1e9
        lasts_s = spec.lease_duration_seconds
        if lasts_s is not None and still_s > lasts_s:
            raise self._unavailable(
                f"kube-scheduler has not renewed it for {still_s:.1f} s, and it lasts {lasts_s} s",
                "try again later",
            )
        held_s = (self._clock_ns() - self._taken_ns) / 1e9
        if self._wall_s is not None and spec.acquire_time is not None and lasts_s is not None:
            # Whoever has just begun here need not wait, if kube-scheduler has had it for long. It
            # notes the time before it takes it, and gives up what takes as long as a lease lasts.
            noted_s = self._wall_s() - spec.acquire_time.timestamp()
            # One that was set since tells nothing of how long ago that was.
            if abs(self._measure_ahead() - self._ahead_s) < _SET_S:
                held_s = max(held_s, noted_s - lasts_s)
        if held_s < self._wait_s:
            raise self._unavailable(
                f"kube-scheduler is known to have had it for {held_s:.1f} s, and until "
                f"{self._wait_s:g} s the one before may still be binding",
                "try again in a moment",
            )
        return spec.tenure

    def _measure_ahead(self) -> float:
        """How far the time of day is ahead of the clock by which bindings are asked for."""
        return self._wall_s() - self._clock_ns() / 1e9 if self._wall_s is not None else 0.0

    def _unavailable(self, why: str, fix: str) -> Unavailable:
        return Unavailable(self._path, why, fix)
