"""The sweeper: it lists the processes whose memory the driver still holds.

When a process dies, the driver needs time to free its memory, and NVML lists the process until
then. The library in a container cannot use that list, because NVML uses the host's PIDs. The
sweeper runs on the host, where it can. Ten times a second, and less often while nothing changes, it
writes NVML's list, with the PID of each process in its own PID namespace, into ``<runtime>/sweep``.
The coordinator compares the list with the accounts of the slices
(``native/coordinator/src/sweep.rs``, which has the format).

After a process has died, ``/proc/<pid>`` no longer exists. So the sweeper reads the identity of a
process when NVML first lists it, and remembers it as long as NVML lists it.

If NVML fails on a card, no sweep is written: the coordinator would take the memory of a dead
process that is missing from the list for freed. The exception is a lost card, which is left out.
That is safe, because no program can allocate memory on a lost card, so its memory cannot be
allocated twice, and the reset that brings the card back frees all of it.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pynvml  # type: ignore[import-untyped]

from hami_py._native import clock_ns
from hami_py.errors import HamiError
from hami_py.gpu.nvml import session
from hami_py.gpu.processes import other_processes

_log = logging.getLogger(__name__)

SWEEP = "sweep"
"""The name of the file in the runtime directory."""

INTERVAL = 0.1
"""Seconds between the starts of two sweeps: a program may wait for the memory of a dead process."""

IDLE_INTERVAL = 0.25
"""The same while nothing changes. A sweep is valid for 0.5 s (``SWEEP_SILENCE_NS``)."""

IDLE_AFTER = 1.0
"""Seconds for which all listed processes run and keep their memory, until nothing changes."""

_WHOLE_CARD = 0xFFFFFFFF
"""The number of the GPU instance of a process on a card that is not partitioned."""

RETRY = 1.0
"""Seconds until the next sweep after an error."""


@dataclass(frozen=True)
class Namespace:
    """A PID namespace, as the file in ``/proc/<pid>/ns`` names it."""

    device: int
    inode: int


@dataclass(frozen=True)
class Identity:
    """The identity of a process, as the process itself knows it.

    Attributes:
        pid_in_namespace: its PID in its own PID namespace; 0 = unknown.
        namespace: its PID namespace; None = unknown.
        start_time: when it started, in clock ticks since boot; None = unknown.
    """

    pid_in_namespace: int
    namespace: Namespace | None
    start_time: int | None


UNKNOWN = Identity(0, None, None)
"""The identity of a process that was never seen in ``/proc``."""


@dataclass(frozen=True)
class Seen:
    """The state of a process in ``/proc``; ``running`` is false for a zombie."""

    start_time: int
    running: bool


@dataclass(frozen=True)
class Row:
    """A process that NVML lists.

    Attributes:
        pid: its PID on the host.
        memory: the bytes that the driver holds for it, by the UUID of the card; empty if NVML does
            not report them.
    """

    pid: int
    identity: Identity
    running: bool
    memory: Mapping[str, int] = field(default_factory=dict)


Known = Mapping[int, tuple[Identity, ...]]
"""For each PID that NVML lists: all processes that have had it since NVML began to list it."""


class Sweeper:
    """Sweeps the cards of a machine.

    It must run in the PID namespace whose numbers NVML uses, and see all processes there whose
    departures matter: as root on the host, or in a pod with ``hostPID``. Elsewhere it would take
    living processes for dead.
    """

    def __init__(self, publish: Callable[[bytes], None], interval: float = INTERVAL) -> None:
        self._publish = publish
        self._interval = interval
        self._known: Known = {}
        self._rows: list[Row] = []
        self._changed_at = 0.0
        self._lost: set[int] = set()
        self._error: str | None = None

    def run(self, stop: threading.Event) -> None:
        """Sweep until ``stop`` is set. After an error it retries."""
        while not stop.is_set():
            try:
                self._sweep_in_session(stop)
            except Exception as error:
                self._log_error(error)
                stop.wait(RETRY)

    def _sweep_in_session(self, stop: threading.Event) -> None:
        """Sweep until ``stop`` is set, or until a card is lost.

        NVML finds a card that was reset only when it starts, and it starts only while this process
        has no session.
        """
        with session():
            while not stop.is_set():
                begin = time.monotonic()
                self.sweep()
                self._log_error(None)
                if self._lost:
                    break
                is_idle = begin - self._changed_at > IDLE_AFTER
                pause = max(self._interval, IDLE_INTERVAL) if is_idle else self._interval
                stop.wait(max(0.0, begin + pause - time.monotonic()))
        stop.wait(self._interval)

    def sweep(self) -> None:
        """Sweep once, in a ``session`` of NVML. If a list of a card fails, nothing is published.

        Raises:
            pynvml.NVMLError: NVML failed on a card that is not lost.
            Exception: from ``publish``.
        """
        started_at = clock_ns()
        listed, lost = listed_processes()
        if lost != self._lost:
            _log.warning("lost cards, which sweeps leave out: %s", sorted(lost) or "none")
            self._lost = lost
        self._known, rows = match(self._known, listed, look, identity_of)
        if rows != self._rows or not all(row.running for row in rows):
            self._rows, self._changed_at = rows, time.monotonic()
        self._publish(encode(started_at, rows))

    def _log_error(self, error: Exception | None) -> None:
        """Log the first error of an outage, and its end (None)."""
        text = None if error is None else f"{type(error).__name__}: {error}"
        if text == self._error:
            return
        self._error = text
        if error is None:
            _log.warning("sweeps are written again")
        else:
            expected = isinstance(error, HamiError | OSError)
            _log.error("no sweeps are written: %s", text, exc_info=None if expected else error)


def writer(runtime: Path) -> Callable[[bytes], None]:
    """A ``publish`` that replaces the file in a runtime directory, of which there may be only one.

    It raises ``OSError`` if the file cannot be written.
    """
    file = runtime / SWEEP

    def write(sweep: bytes) -> None:
        aside = file.with_name(f".{SWEEP}.{os.getpid()}")
        try:
            aside.write_bytes(sweep)
            aside.replace(file)
        except OSError:
            aside.unlink(missing_ok=True)
            raise

    return write


def match(
    known: Known,
    listed: Mapping[int, Mapping[str, int]],
    look: Callable[[int], Seen | None],
    identify: Callable[[int], Identity | None],
) -> tuple[Known, list[Row]]:
    """The known processes for the next sweep, and the rows of the listed PIDs.

    If a PID was reused while NVML listed it, each process that had it gets a row, because NVML does
    not say which one it lists.
    """
    still: dict[int, tuple[Identity, ...]] = {}
    rows: list[Row] = []
    for pid, memory in sorted(listed.items()):
        seen = look(pid)
        had = known.get(pid, ())
        if seen is None:
            had = had or (UNKNOWN,)
        elif all(identity.start_time != seen.start_time for identity in had):
            had = tuple(dict.fromkeys((*had, identify(pid) or UNKNOWN)))
        still[pid] = had
        for identity in had:
            running = seen is not None and seen.running and identity.start_time == seen.start_time
            rows.append(Row(pid, identity, running, memory))
    return still, rows


def encode(started_at: int, rows: Iterable[Row]) -> bytes:
    """The contents of the file. ``started_at`` is a time of ``clock_ns``."""
    listed = [
        {"pid": row.pid, **vars(row.identity), "running": row.running, "memory": row.memory}
        for row in rows
    ]
    return msgspec.json.encode({"version": 1, "started_at": started_at, "processes": listed})


def listed_processes() -> tuple[dict[int, dict[str, int]], set[int]]:
    """The processes that NVML lists on any card, and the indices of the lost cards.

    Returns:
        By PID, the bytes that the driver holds for the process, by the UUID of the card. A process
        whose memory NVML does not report has none; so has one on a GPU in MIG mode, which lists the
        processes of all its MIG devices.

    Raises:
        pynvml.NVMLError: NVML failed on a card that is not lost.
    """
    listed: dict[int, dict[str, int]] = {}
    lost: set[int] = set()
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            card = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = str(pynvml.nvmlDeviceGetUUID(card))
            for pid, bytes_held in _processes_on(card):
                memory = listed.setdefault(pid, {})
                if bytes_held is not None:
                    memory[uuid] = max(memory.get(uuid, 0), bytes_held)
        except pynvml.NVMLError_GpuIsLost:
            lost.add(index)
    return listed, lost


def _processes_on(card: object) -> Iterator[tuple[int, int | None]]:
    """PID and bytes of each process that NVML lists on a card; None = not reported."""
    for row in pynvml.nvmlDeviceGetComputeRunningProcesses(card):
        in_partition = getattr(row, "gpuInstanceId", _WHOLE_CARD) != _WHOLE_CARD
        yield row.pid, None if in_partition else row.usedGpuMemory
    yield from ((row.pid, None) for row in other_processes(card))


def look(pid: int) -> Seen | None:
    """The current state of a process in ``/proc``; None if it is not there."""
    try:
        # Each sweep does this for each process; a Path or a file object takes twice as long.
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        try:
            stat = os.read(file, 4096)
        finally:
            os.close(file)
    except OSError:
        return None
    # The name in parentheses may contain parentheses and spaces.
    fields = stat.rpartition(b")")[2].split()
    return Seen(int(fields[19]), fields[0] not in (b"Z", b"X")) if len(fields) > 19 else None


def identity_of(pid: int) -> Identity | None:
    """The identity of a process; None if it is not there, or another process got its PID."""
    process = Path(f"/proc/{pid}")
    before = look(pid)
    try:
        status = (process / "status").read_text(errors="replace")
    except OSError:
        return None
    pids = [line.split() for line in status.splitlines() if line.startswith("NSpid:")]
    namespace = None
    # Without root's rights, the namespaces of other users' processes cannot be read.
    with suppress(OSError):
        found = (process / "ns" / "pid").stat()
        namespace = Namespace(found.st_dev, found.st_ino)
    after = look(pid)
    if before is None or after is None or before.start_time != after.start_time:
        return None
    return Identity(int(pids[0][-1]) if pids else pid, namespace, before.start_time)
