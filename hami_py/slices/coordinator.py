"""The coordinator's life, seen from the programs that need one.

Where slices have shares of a card's time, one process per runtime directory hands that time out in
turns (``hami_py.coordinator``). It is nobody's: who needs one starts it where none runs, and it
ends when the last slice has gone. Where it is missed, killed for instance, every program holds its
share by itself, only less exactly, until someone who looks starts another.
"""

import fcntl
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hami_py import coordinator
from hami_py._native import LimitsPage
from hami_py.config import HAMI_SLICE, LD_PRELOAD, LIMITS, Settings
from hami_py.coordinator import LOCK, LOG
from hami_py.errors import DamagedFile
from hami_py.slices.levels import limit_of
from hami_py.slices.processes import command_of, interpreter
from hami_py.version import VERSION

PROGRAM = Path(coordinator.__file__).with_name("__main__.py")

_PLACE = "/".join(PROGRAM.parts[-3:])
"""What the command line of one has, whatever installation it is from."""

START_DEADLINE = 10.0
"""Seconds in which one must have the lock: it takes 20 ms, but the machine may be busy."""

END_DEADLINE = 1.0
"""Seconds in which one that was told to end must have given the lock back."""

LONGEST_PAUSE = 64.0
"""Seconds between two starts, where those that are started do not live."""


@dataclass(frozen=True)
class Running:
    """The coordinator that runs.

    Attributes:
        pid: in its own PID namespace; 0 = it has not said yet.
        version: of the package that it is from; empty = it has not said yet.
    """

    pid: int
    version: str


def running(settings: Settings) -> Running | None:
    """The coordinator of this user, if one runs.

    Raises:
        OSError: the lock cannot be asked.
    """
    try:
        lock = os.open(
            settings.runtime_directory / LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        )
    except FileNotFoundError:
        return None
    try:
        # Shared, so that those who look are not in each other's way.
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        said = re.match(rb"(\d+) (\S+)\n", os.pread(lock, 100, 0))
        return Running(int(said[1]), said[2].decode(errors="replace")) if said else Running(0, "")
    finally:
        os.close(lock)
    return None


def last_words(settings: Settings) -> str | None:
    """The last line that a coordinator has said, which it does only where it fails; or None."""
    try:
        lines = (settings.runtime_directory / LOG).read_text(errors="replace").split("\n")
    except OSError:
        return None
    return next((line.strip() for line in reversed(lines) if line.strip()), None)


def ensure(settings: Settings, directory: Path) -> tuple[str, ...]:
    """See to it that a coordinator runs, if this slice has a share.

    Args:
        settings: of this process.
        directory: the slice.

    Returns:
        What the user must be told: why none could be started. The share holds all the same.
    """
    if not needs_one(directory):
        return ()
    try:
        if not _is_wanted(settings):
            return ()
        with start(settings) as starter:
            try:
                _out, said = starter.communicate(timeout=START_DEADLINE)
            except subprocess.TimeoutExpired:
                starter.kill()
                return (_missed(f"it had not begun within {START_DEADLINE:g} s"),)
        if starter.returncode:
            lines = said.strip().splitlines() or [f"exit code {starter.returncode}"]
            return (_missed(lines[-1]),)
    except OSError as error:
        return (_missed(error.strerror or str(error)),)
    return ()


def needs_one(directory: Path) -> bool:
    """The slice has a share of a card; what is wrong with its page is said by others."""
    try:
        rows = LimitsPage.open(directory / LIMITS).rows()
    except (OSError, DamagedFile):
        return False
    return any(limit_of(row).share is not None for row in rows)


def start(settings: Settings) -> "subprocess.Popen[str]":
    """Start one, which detaches itself; the process ends when it has, or has failed.

    Raises:
        OSError: no process can be started.
    """
    python = interpreter()
    if python is None:
        raise OSError(0, "this Python is part of another program, and cannot start one")
    return subprocess.Popen(
        # Neither the user's Python settings nor packages: what it needs is beside it.
        [python, "-I", "-S", str(PROGRAM), "--detach", str(settings.runtime_directory)],
        env=_environment(settings.environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )


class Keeper:
    """Sees to it that a coordinator runs while a program does, and never waits for one.

    Args:
        settings: of this process.
        directory: the program's slice, which may be given a share at any time.
    """

    def __init__(self, settings: Settings, directory: Path) -> None:
        self._settings = settings
        self._directory = directory
        self._starter: subprocess.Popen[str] | None = None
        self._pause, self._next = 1.0, 0.0

    def look(self) -> None:
        """Start one if none runs; to be called from time to time."""
        if self._starter is not None and self._starter.poll() is None:
            return
        self._forget_starter()
        # Nothing here is worth disturbing the program for: the next look may do better.
        with suppress(OSError):
            if not needs_one(self._directory):
                return
            if not _is_wanted(self._settings):
                self._pause = 1.0
            elif time.monotonic() >= self._next:
                self._next = time.monotonic() + self._pause
                self._pause = min(2 * self._pause, LONGEST_PAUSE)
                self._starter = start(self._settings)

    def end(self) -> None:
        """Leave no child behind; one that has just been started goes on."""
        if self._starter is not None:
            self._starter.wait()
        self._forget_starter()

    def _forget_starter(self) -> None:
        if self._starter is not None and self._starter.stderr is not None:
            self._starter.stderr.close()
        self._starter = None


def _is_wanted(settings: Settings) -> bool:
    """None runs, or one of an older version did, which may not know the files of ours.

    Only an older one is ended, so that two installations do not end each other's for ever.

    Raises:
        OSError: the lock cannot be asked.
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
    """Behind this pid is a coordinator of this directory, and not who got the number after it."""
    *words, last = command_of(found.pid) or ("",)
    named = any(word.endswith((_PLACE, "hami_py.coordinator")) for word in words)
    return named and last == str(settings.runtime_directory)


def _is_older(version: str) -> bool:
    """Than ours; what is no version is not."""
    theirs, ours = ([int(n) for n in re.findall(r"\d+", v)] for v in (version, VERSION))
    return bool(theirs) and theirs < ours


def _environment(base: Mapping[str, str]) -> dict[str, str]:
    """Its own, not a program's of the slice that it was started from."""
    return {name: value for name, value in base.items() if name not in {LD_PRELOAD, HAMI_SLICE}}


def _missed(why: str) -> str:
    return (
        f"coordinator: none could be started: {why}; shares hold less exactly without one:"
        " see `hami doctor`"
    )
