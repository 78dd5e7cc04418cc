"""The health of the cards: which of them must get no new programs, and why.

A card fails in three ways. It does not answer any more (it is lost, or NVML does not list it). The
driver reports a critical error, an XID. Or NVML itself hangs, and with it everything that asks it.
A thread probes all cards twice a second and reads their XID errors. A second thread only looks
whether the first one makes progress, because a call of NVML has no deadline.

Every failure can end: cards are reset, drivers are loaded again. So a card becomes healthy again.

This module creates no CUDA context. It has a session of NVML of its own.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress

import pynvml  # type: ignore[import-untyped]

from hami_py.errors import HamiError
from hami_py.gpu.nvml import in_mig_mode, mig_devices, reported_total, session

ALL = "*"
"""Stands for all cards in ``Health.unhealthy``."""

APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""XID errors that a program causes, and that leave the card healthy: exceptions and page faults of
its kernels (13, 31, 43), the cleanup after them (45), exceptions of the video engine (68), a
context switch that timed out (109).

Source: NVIDIA, XID errors, https://docs.nvidia.com/deploy/xid-errors/; NVIDIA's device plugin
ignores the same ones.
"""

QUIET = 60.0
"""Seconds without another critical XID error until a card counts as recovered. Errors of broken
hardware come in bursts, so that a shorter time would let a card change its state all the time."""

INTERVAL = 0.5
"""Seconds between two probes."""

SILENCE = 3.0
"""Seconds that a probe of one card may take. NVML usually takes less than a millisecond."""

OPENING = 15.0
"""Seconds that it may take to start NVML: without persistence mode it initialises every card."""

REOPEN = 10.0
"""Seconds until NVML is started again while a card does not answer. NVML finds a card that was
reset, or a driver that was loaded again, only when it starts."""

TICK = 0.25
"""Seconds between two looks of the second thread at the first one."""

_EVENTS = 100
"""XID errors that are read in one probe, so that a flood of them does not keep it from its end."""

NOT_LISTED = "NVML does not list it"

_WHOLE = 0xFFFFFFFF
"""The instance id of an XID error that concerns a whole GPU (nvml.h, ``nvmlEventData_t``)."""


class _Limit:
    """How long the current step may take, in seconds. Each step has an object of its own."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Health:
    """Watches all cards of this machine, from ``start`` to ``stop``; it can be started once.

    Args:
        changed: called when ``unhealthy()`` has changed, from a thread of this object.
        quiet: seconds without another critical XID error until a card has recovered.
        managed: the UUIDs of the GPUs in MIG mode that are watched, and not their MIG devices.
    """

    def __init__(
        self,
        changed: Callable[[], None],
        quiet: float = QUIET,
        managed: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._changed, self._managed = changed, managed
        self._quiet = quiet
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.threads: list[threading.Thread] = []
        # Written by the probing thread.
        self._limit: _Limit | None = None
        self._reasons: Mapping[str, str] = {}
        self._known: set[str] = set()
        self._xids: dict[str, tuple[int, float]] = {}
        # Written by the second thread.
        self._hangs = False
        # Written under the lock.
        self._unhealthy: Mapping[str, str] = {}

    def start(self) -> None:
        """Start to watch. Until the first probe is complete, all cards count as healthy."""
        probing = threading.Thread(target=self._probe, name="gpu-health", daemon=True)
        watching = threading.Thread(
            target=self._watch, args=[probing], name="gpu-health-watchdog", daemon=True
        )
        self.threads = [probing, watching]
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """Stop to watch and close the session. It takes less than a second.

        If NVML hangs, the session stays open until the call returns.
        """
        self._stop.set()
        until = time.monotonic() + 0.9
        for thread in self.threads:
            thread.join(max(0.0, until - time.monotonic()))

    def unhealthy(self) -> Mapping[str, str]:
        """The unhealthy cards: a reason of one line by UUID.

        If NVML does not respond, there is one entry instead, with the key ``ALL``.
        """
        return self._unhealthy

    def _publish(self) -> None:
        with self._lock:
            now = {ALL: "NVML does not respond"} if self._hangs else self._reasons
            if self._stop.is_set() or now == self._unhealthy:
                return
            self._unhealthy = now
        self._changed()

    def _watch(self, probing: threading.Thread) -> None:
        """Compare the probing thread's step with the last one.

        Ticks are counted, because a clock also runs while the whole process is stopped.
        """
        last, ticks = None, 0
        while not self._stop.wait(TICK):
            limit = self._limit
            ticks = ticks + 1 if limit is last else 0
            last = limit
            late = limit is not None and ticks * TICK >= limit.seconds
            self._hangs = late or not probing.is_alive()
            self._publish()

    def _pause(self) -> None:
        self._limit = None
        self._stop.wait(INTERVAL)

    def _probe(self) -> None:
        while not self._stop.is_set():
            self._limit = _Limit(OPENING)
            try:
                with session():
                    self._probe_in_session()
            except HamiError as error:
                self._reasons = {ALL: f"{error.what}: {error.why}"}
                self._publish()
                self._pause()

    def _probe_in_session(self) -> None:
        """Probe until the end, or until a new session may find more."""
        with self._open() as (cards, error):
            self._known |= cards.keys()
            opened, silent, managed = time.monotonic(), frozenset[str](), self._managed()
            while not self._stop.is_set():
                before = silent
                reasons = dict.fromkeys(self._known - cards.keys(), error or NOT_LISTED)
                for uuid, card in cards.items():
                    self._limit = _Limit(SILENCE)
                    self._read_xids(uuid, card)
                    if problem := card.problem():
                        reasons[uuid] = problem
                silent = frozenset(reasons)
                if before - silent:
                    # A card that was reset has lost its registration for events. Nothing is
                    # published before it has a new one.
                    return
                for uuid in cards.keys() & self._xids.keys() - silent:
                    self._limit = _Limit(SILENCE)
                    if problem := self._after_xid(uuid, cards[uuid]):
                        reasons[uuid] = problem
                self._reasons = reasons
                self._publish()
                if (silent or error) and time.monotonic() - opened >= REOPEN:
                    return
                if self._managed() != managed:
                    # Others are watched from now on.
                    self._known.clear()
                    return
                self._pause()

    def _read_xids(self, uuid: str, card: "_Card") -> None:
        for xid in card.xids():
            if xid not in APPLICATION_XIDS:
                self._xids[uuid] = xid, time.monotonic()

    def _after_xid(self, uuid: str, card: "_Card") -> str | None:
        """The reason why a card that answers has not recovered from its last XID error, if so."""
        xid, since = self._xids[uuid]
        if time.monotonic() - since < self._quiet:
            return f"XID error {xid}"
        if card.remap_failed():
            return f"XID error {xid}, and a row of its memory could not be remapped"
        del self._xids[uuid]
        return None

    @contextmanager
    def _open(self) -> Iterator[tuple[dict[str, "_Card"], str | None]]:
        """The cards of this session by UUID, and NVML's error if some could not be opened.

        Raises:
            pynvml.NVMLError: NVML cannot count its cards.
        """
        cards: dict[str, _Card] = {}
        failed: str | None = None
        with ExitStack() as opened:
            for index in range(pynvml.nvmlDeviceGetCount()):
                self._limit = _Limit(OPENING)
                try:
                    gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
                    slices = None
                    if in_mig_mode(gpu) and pynvml.nvmlDeviceGetUUID(gpu) not in self._managed():
                        slices = mig_devices(gpu)
                    for handle in [gpu] if slices is None else slices:
                        uuid = str(pynvml.nvmlDeviceGetUUID(handle))
                        cards[uuid] = _Card(gpu, handle, is_mig=slices is not None)
                        opened.callback(cards[uuid].close)
                except pynvml.NVMLError as error:
                    failed = str(error)
            yield cards, failed


class _Card:
    """A card in a session: a GPU, or a MIG device of it.

    Each card has an event set of its own: if a card is lost, waiting for a set with it fails.
    """

    def __init__(self, gpu: object, handle: object, *, is_mig: bool) -> None:
        self._gpu = gpu
        self._handle = handle
        self._instances: tuple[int, int] | None = None
        if is_mig:
            self._instances = (
                pynvml.nvmlDeviceGetGpuInstanceId(handle),
                pynvml.nvmlDeviceGetComputeInstanceId(handle),
            )
        self._events: object | None = None
        # Some cards and drivers have no events, or not for everyone.
        with suppress(pynvml.NVMLError):
            self._events = pynvml.nvmlEventSetCreate()
            try:
                kind = pynvml.nvmlEventTypeXidCriticalError
                # NVML reports the errors of slices for the whole GPU.
                pynvml.nvmlDeviceRegisterEvents(gpu, kind, self._events)
            except pynvml.NVMLError:
                self.close()

    def close(self) -> None:
        if self._events is not None:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlEventSetFree(self._events)
            self._events = None

    def problem(self) -> str | None:
        """NVML's error for this card; None if the card answers."""
        try:
            reported_total(self._handle)
        except pynvml.NVMLError as error:
            return str(error)
        return None

    def xids(self) -> list[int]:
        """The XID errors since the last call; of very many, the first ones."""
        found: list[int] = []
        if self._events is None:
            return found
        # A timeout is the end of the queue.
        with suppress(pynvml.NVMLError):
            for _ in range(_EVENTS):
                event = pynvml.nvmlEventSetWait_v2(self._events, 0)
                instances = (event.gpuInstanceId, event.computeInstanceId)
                if _WHOLE in instances or self._instances in (None, instances):
                    found.append(int(event.eventData))
        return found

    def remap_failed(self) -> bool:
        """Whether a faulty row of its memory could not be replaced by a spare one."""
        try:
            *_, failed = pynvml.nvmlDeviceGetRemappedRows(self._gpu)
        except pynvml.NVMLError:
            # Cards before Ampere do not remap rows.
            return False
        return bool(failed)
