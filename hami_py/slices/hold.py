"""The directory of a slice: made before the first program starts, removed after the last process.

    <runtime>/slices/<id>/limits       what may be used
                          account      what is used
                          grants       whose turn it is, as a coordinator says
                          slice.json   who made it and what for; its lock says who holds it

Whoever has made or opened a slice holds it: ``hami run`` while its program runs, a Python process
until it closes it. A holder has a shared lock of ``slice.json``, so "does anyone hold it" is
answered by the kernel, also across PID namespaces and reused PIDs. Processes may outlive every
holder; they keep the slice, and whoever starts the next slice removes it after they have gone.

All of this happens under the lock of the directory of slices, so that none is ever half made or
half removed for another.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from hami_py._native import Account, GrantsPage, LimitRow, LimitsPage
from hami_py.config import LIMITS
from hami_py.errors import DamagedFile, InvalidValue, StateError
from hami_py.model import CardLimit
from hami_py.slices.options import Command
from hami_py.slices.processes import Environments, pid_namespace, read_environments
from hami_py.slices.record import RECORD, Record, new_record, read_record
from hami_py.slices.runtime import locked, runtime_directory, try_lock, usable

ACCOUNT = "account"
GRANTS = "grants"


@dataclass
class Hold:
    """A slice that this process holds, until it releases it or ends.

    A child that is forked meanwhile holds it as well, until it ends or executes a program. A hold
    that is forgotten is given up when the file is collected, with Python's ``ResourceWarning``.
    """

    directory: Path
    record: Record
    file: BinaryIO

    def release(self) -> None:
        """Hold it no more, and remove it unless it is kept, held by others or in use.

        Raises:
            StateError: it cannot be looked after; the next start will.
        """
        # Before anything that can fail, so that the next start may remove what we cannot.
        self.file.close()
        slices = self.directory.parent
        with usable(self.directory):
            # At the end of a session the whole runtime directory may go before us.
            if self.directory.exists():
                with locked(slices):
                    if is_abandoned(self.directory, read_environments(self.record.boot_time)):
                        remove_files(self.directory)

    def abandon(self) -> None:
        """Hold it no more and remove it: nothing was ever started in it."""
        with locked(self.directory.parent):
            self.file.close()
            remove_files(self.directory)


def make(runtime: Path, limits: Sequence[CardLimit], record: Record) -> Hold:
    """A new slice, held by this process.

    Args:
        runtime: the runtime directory; made where it is missing.
        limits: one row per card.
        record: what is to be known of it.

    Raises:
        StateError: it cannot be made.
        InvalidValue: another slice has its name.
    """
    slices = runtime_directory(runtime) / "slices"
    directory = slices / os.urandom(16).hex()
    with usable(directory):
        slices.mkdir(mode=0o700, exist_ok=True)
        with locked(slices):
            _remove_abandoned(slices)
            if record.name is not None:
                _require_free(slices, record.name)
            directory.mkdir(mode=0o700)
            try:
                file = _fill(directory, limits, record)
            except BaseException:
                remove_files(directory)
                raise
    return Hold(directory, record, file)


def hold(directory: Path) -> Hold:
    """Hold a slice that is there; with the lock of the directory of slices.

    Raises:
        StateError: its record is damaged.
        OSError: it cannot be opened.
    """
    record = read_record(directory)
    if record is None:
        fix = f"remove it with `hami rm {directory.name}` and make another"
        raise StateError(f"slice {directory.name}", f"its {RECORD} cannot be read", fix)
    return Hold(directory, record, _lock(directory, os.O_RDONLY))


@contextmanager
def create(runtime: Path, limits: Sequence[CardLimit], command: Command) -> Iterator[Path]:
    """The directory of a new slice, held while the block runs.

    Args:
        runtime: the runtime directory; made where it is missing.
        limits: one row per card.
        command: what will run in it, for people who look at it.

    Raises:
        StateError: it cannot be made or, at the end, not be looked after.
    """
    held = make(runtime, limits, new_record(command))
    try:
        yield held.directory
    finally:
        held.release()


def remove_stale(runtime: Path) -> int:
    """Remove the slices that nobody holds, keeps or uses; how many there were.

    Raises:
        StateError: the runtime directory cannot be used.
    """
    slices = runtime_directory(runtime) / "slices"
    with usable(slices):
        if not slices.exists():
            return 0
        with locked(slices):
            return _remove_abandoned(slices)


def is_held(directory: Path) -> bool:
    """Whether any process holds it; with the lock of the directory of slices."""
    try:
        descriptor = os.open(directory / RECORD, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        # Whoever made or removed it was killed half-way.
        return False
    try:
        return not try_lock(descriptor)
    finally:
        os.close(descriptor)


def is_abandoned(directory: Path, environments: Environments) -> bool:
    """Nobody holds it, it is not to be kept, and no process is in it."""
    if is_held(directory):
        return False
    record = read_record(directory)
    if record is not None and (record.keep or record.relaunched_lives()):
        return False
    return not is_in_use(directory, record, environments)


def is_in_use(directory: Path, record: Record | None, environments: Environments) -> bool:
    """A process has it in its environment, or still holds a place in its account.

    Both are asked: a process that has not called CUDA yet is in no account, and one that has
    overwritten its environment or lives in another PID namespace is only there.
    """
    made = None if record is None else record.boot_time
    return environments.may_be_in(directory, made) or bool(_members(directory))


def pids_in(directory: Path, environments: Environments) -> frozenset[int]:
    """The processes in it that can be named here: those of our PID namespace."""
    here = pid_namespace()
    members = {pid for namespace, pid in _members(directory) if namespace == here}
    return environments.inside.get(str(directory), frozenset()) | members


def oldest(directories: Iterable[Path]) -> float:
    """When the oldest of these slices was made, in seconds since boot; 0 = not known."""
    records = [read_record(directory) for directory in directories]
    return min((record.boot_time if record else 0.0 for record in records), default=0.0)


def remove_files(directory: Path) -> None:
    """A slice holds files only. One that cannot be removed must not stand in anyone's way."""
    with suppress(OSError):
        for path in directory.iterdir():
            path.unlink()
        directory.rmdir()


def _fill(directory: Path, limits: Sequence[CardLimit], record: Record) -> BinaryIO:
    """Write the files of a slice; its record comes last, open and locked."""
    rows = [LimitRow(row.uuid, row.memory, row.share, row.mode, row.priority) for row in limits]
    LimitsPage.create(directory / LIMITS, rows)
    Account.create(directory / ACCOUNT)
    GrantsPage.create(directory / GRANTS)
    file = _lock(directory, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    record.write(file.fileno())
    return file


def _lock(directory: Path, flags: int) -> BinaryIO:
    """The record, open and locked, closed to programs that we start."""

    def opener(path: str, _flags: int) -> int:
        return os.open(path, flags | os.O_CLOEXEC, 0o600)

    file = open(directory / RECORD, "rb", opener=opener)  # noqa: SIM115
    # Nobody is probing it: they would need the lock of the directory, which we have.
    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return file


def _members(directory: Path) -> list[tuple[int, int]]:
    """PID namespace and PID of the living members of its account."""
    try:
        processes = Account.open(directory / ACCOUNT).snapshot().processes
    except (OSError, DamagedFile):
        return []
    return [(process.pid_namespace, process.pid) for process in processes if process.alive]


def _remove_abandoned(slices: Path) -> int:
    orphans = [directory for directory in slices.iterdir() if not is_held(directory)]
    # Looking at every process is the long part, and mostly there is no orphan.
    environments = read_environments(oldest(orphans)) if orphans else Environments()
    abandoned = [directory for directory in orphans if is_abandoned(directory, environments)]
    for directory in abandoned:
        remove_files(directory)
    return len(abandoned)


def _require_free(slices: Path, name: str) -> None:
    for directory in slices.iterdir():
        record = read_record(directory)
        if record is not None and record.name == name:
            fix = f"slice {directory.name[:12]} has it: choose another, or join that one"
            raise InvalidValue("name", name, fix)
