"""Starting and restarting the coordinator.

If slices have shares of a card's time, one coordinator per runtime directory leases the cards to
them (``hami_py.coordinator``). A program that needs a coordinator starts one if none runs. The
coordinator detaches itself from that program, and exits after the last slice was removed. Without a
coordinator, for example after it was killed, each program keeps to its share by itself, less
exactly, until another one is started.
"""

import fcntl
import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hami_py import coordinator
from hami_py._native import VERSION, LimitsPage
from hami_py.config import LIMITS, Settings
from hami_py.coordinator import LOCK, LOG
from hami_py.errors import DamagedFile, StateError
from hami_py.slices.beside import without_slice
from hami_py.slices.layers import limit_of
from hami_py.slices.machine import is_of_machine
from hami_py.slices.processes import command_of, interpreter

PROGRAM = Path(coordinator.__file__).with_name("__main__.py")

_PATH_END = "/".join(PROGRAM.parts[-3:])
"""The end of this path in a coordinator's command line, in every installation."""

START_DEADLINE = 10.0
"""Seconds in which a new coordinator must have the lock: usually 20 ms, more on a busy machine."""

END_DEADLINE = 1.0
"""Seconds to wait for the end of a coordinator or of the process that starts it."""

LONGEST_PAUSE = 64.0
"""Seconds between two starts, if the started ones fail."""


@dataclass(frozen=True)
class Running:
    """A running coordinator.

    Attributes:
        pid: in its own PID namespace; 0 = not yet written.
        version: the version of its package; empty = not yet written.
    """

    pid: int
    version: str


def running(settings: Settings) -> Running | None:
    """The coordinator of this user, if one runs.

    Raises:
        OSError: the lock cannot be tested.
    """
    try:
        text = _text_if_locked(settings.runtime_directory / LOCK)
    except FileNotFoundError:
        return None
    if text is None:
        return None
    found = re.match(rb"(\d+) (\S+)\n", text)
    return Running(int(found[1]), found[2].decode(errors="replace")) if found else Running(0, "")


def _text_if_locked(path: Path) -> bytes | None:
    """The text of a coordinator's lock; None if no coordinator has it."""
    lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        # Shared, so that several processes can test it at the same time.
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(lock, 100, 0)
    finally:
        os.close(lock)
    return None


def last_error(settings: Settings) -> str | None:
    """The last line of the coordinator's log, which it writes only if it fails; or None."""
    try:
        lines = (settings.runtime_directory / LOG).read_text(errors="replace").split("\n")
    except OSError:
        return None
    return next((line.strip() for line in reversed(lines) if line.strip()), None)


def ensure(settings: Settings, directory: Path) -> tuple[str, ...]:
    """Start a coordinator if this slice has a share and none runs.

    Returns:
        Messages for the user: why it could not be started. The share is enforced nevertheless.
    """
    if is_of_machine(settings, directory) or not has_share(directory):
        return ()
    try:
        if not _should_start(settings):
            return ()
        with start(settings) as starter:
            try:
                _out, errors = starter.communicate(timeout=START_DEADLINE)
            except subprocess.TimeoutExpired:
                starter.kill()
                return (_failure(f"it did not start within {START_DEADLINE:g} s"),)
        if starter.returncode:
            lines = errors.strip().splitlines() or [f"exit code {starter.returncode}"]
            return (_failure(lines[-1]),)
    except OSError as error:
        return (_failure(error.strerror or str(error)),)
    return ()


def require_unmanaged(settings: Settings) -> None:
    """Check that no node agent schedules the cards of this machine.

    Two coordinators would grant the same time twice.

    Raises:
        StateError: a node agent does.
    """
    try:
        is_locked = _text_if_locked(settings.node_runtime / LOCK) is not None
    except OSError as error:
        # Only root can test it.
        is_locked = isinstance(error, PermissionError)
    if is_locked:
        raise StateError(
            "share of a card's time",
            "the node agent of Kubernetes schedules the cards of this machine",
            "run the program in a pod, or without a share",
        )


def has_share(directory: Path) -> bool:
    """Whether a slice has a share of a card; False if its limits page is damaged."""
    try:
        rows = LimitsPage.open(directory / LIMITS).rows()
    except (OSError, DamagedFile):
        return False
    return any(limit_of(row).share is not None for row in rows)


def start(settings: Settings) -> "subprocess.Popen[str]":
    """Start a coordinator.

    The returned process exits when the coordinator has detached itself, or has failed.

    Raises:
        OSError: no process can be started.
    """
    python = interpreter()
    if python is None:
        raise OSError(0, "this Python is embedded in another program, which cannot start one")
    return subprocess.Popen(
        # Isolated from the user's Python settings and packages: all it needs is beside it.
        [python, "-I", "-S", str(PROGRAM), "--detach", str(settings.runtime_directory)],
        # It does not run in the slice that needs it.
        env=without_slice(settings.environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )


class CoordinatorSupervisor:
    """Restarts the coordinator while a program runs, without ever waiting for it."""

    def __init__(self, settings: Settings, directory: Path) -> None:
        self._settings = settings
        self._directory = directory
        self._starter: subprocess.Popen[str] | None = None
        self._pause, self._next = 1.0, 0.0

    def check(self) -> None:
        """Start a coordinator if none runs. Call this regularly."""
        if self._starter is not None and self._starter.poll() is None:
            return
        self._forget_starter()
        # A failure must not disturb the program; the next check retries.
        with suppress(OSError):
            if is_of_machine(self._settings, self._directory) or not has_share(self._directory):
                return
            if not _should_start(self._settings):
                self._pause = 1.0
            elif time.monotonic() >= self._next:
                self._next = time.monotonic() + self._pause
                self._pause = min(2 * self._pause, LONGEST_PAUSE)
                self._starter = start(self._settings)

    def close(self) -> None:
        """Wait for the starting process, but not for ever. The coordinator runs on."""
        if self._starter is not None:
            with suppress(subprocess.TimeoutExpired):
                self._starter.wait(END_DEADLINE)
        self._forget_starter()

    def _forget_starter(self) -> None:
        if self._starter is not None and self._starter.stderr is not None:
            self._starter.stderr.close()
        self._starter = None


def _should_start(settings: Settings) -> bool:
    """Whether no coordinator runs. One of an older version is stopped first.

    An older one may not know the format of our files. A newer one is not stopped, because otherwise
    two installations would stop each other's coordinators for ever.

    Raises:
        OSError: the lock cannot be tested.
    """
    found = running(settings)
    if found is None:
        return True
    if not (_is_ours(found, settings) and _is_older(found.version)):
        return False
    with suppress(ProcessLookupError):
        os.kill(found.pid, signal.SIGTERM)
    deadline = time.monotonic() + END_DEADLINE
    while running(settings) == found:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def _is_ours(found: Running, settings: Settings) -> bool:
    """Whether this pid is a coordinator of this directory, and was not reused."""
    *words, last = command_of(found.pid) or ("",)
    named = any(word.endswith((_PATH_END, "hami_py.coordinator")) for word in words)
    return named and last == str(settings.runtime_directory)


def _is_older(version: str) -> bool:
    """Whether a version is older than ours; False for a text that is no version."""
    theirs, ours = ([int(n) for n in re.findall(r"\d+", v)] for v in (version, VERSION))
    return bool(theirs) and theirs < ours


def _failure(why: str) -> str:
    return (
        f"coordinator: it could not be started: {why}; shares are less exact without it:"
        " see `hami doctor`"
    )
