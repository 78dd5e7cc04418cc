"""The directory of a slice: created before its first program, removed after its last process.

    <runtime>/slices/<id>/limits       the limits page
                          account      the account file
                          grants       the grants page, written by the coordinator
                          slice.json   the record (record.py); its lock marks the holders
                          chosen-cards by UUID, in the order in which programs count them
                          libvgpu.so   by which programs find the slice, with layers (beside.py)

A process that created or opened a slice holds it: ``hami run`` while its program runs, a Python
process until it closes the slice. A holder has a shared lock of ``slice.json``, so the kernel knows
whether a slice is held, also across PID namespaces and reused PIDs. Processes in a slice may
outlive every holder. Then the slice stays, and the process that creates the next slice removes it
after they have ended.

All of this happens under the lock of the directory of slices, so that no process sees a slice that
is partly created or removed.
"""

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from hami_py._native import Account, GrantsPage, LimitRow, LimitsPage
from hami_py.config import ACCOUNT, CHOSEN, GRANTS, LIMITS, PACKAGED_LIBRARY
from hami_py.errors import DamagedFile, InvalidValue, StateError
from hami_py.model import CardLimit, gang_of_user
from hami_py.model.cards import UNKNOWN, DriverMemory
from hami_py.slices import summary
from hami_py.slices.beside import WITHIN, link
from hami_py.slices.processes import Environments, pid_namespace, read_environments
from hami_py.slices.programs import Command
from hami_py.slices.record import RECORD, Record, new_record, read_record
from hami_py.slices.runtime import keep_from_cleaners, locked, runtime_directory, try_lock, usable


@dataclass
class Hold:
    """A slice that this process holds, until it releases it or exits.

    A forked child holds it too, until it exits or executes a program. If the object is garbage
    collected without a release, Python warns with a ``ResourceWarning``.
    """

    directory: Path
    record: Record
    file: BinaryIO

    def release(self) -> None:
        """Release the slice, and remove it unless it is kept, held by others or in use.

        Raises:
            StateError: its directory cannot be read or removed now; the next new slice retries.
        """
        # First, before anything can fail, so that the next new slice can remove this one.
        self.file.close()
        slices = self.directory.parent
        with usable(self.directory):
            # At the end of a session the runtime directory may be removed before this.
            if self.directory.exists():
                with locked(slices):
                    if is_abandoned(self.directory, read_environments(self.record.boot_time)):
                        end(self.directory, self.record)

    def abandon(self) -> None:
        """Release and remove a slice in which no program was started."""
        with locked(self.directory.parent):
            self.file.close()
            remove_files(self.directory)


def create_held(
    runtime: Path,
    limits: Sequence[CardLimit],
    record: Record,
    library: Path,
    driver_memory: Mapping[str, DriverMemory] | None = None,
) -> Hold:
    """Create a slice that this process holds.

    Raises:
        StateError: it cannot be created.
        InvalidValue: another slice has its name.
    """
    slices = runtime_directory(runtime) / "slices"
    directory = slices / os.urandom(16).hex()
    with usable(directory):
        slices.mkdir(mode=0o700, exist_ok=True)
        keep_from_cleaners(slices.parent)
        with locked(slices):
            _remove_abandoned(slices)
            if record.name is not None:
                _require_unused(slices, record.name)
            directory.mkdir(mode=0o700)
            try:
                link(directory, [Path(path) for path in record.around], library)
                file = _fill(directory, limits, record, driver_memory or {})
            except BaseException:
                remove_files(directory)
                raise
    return Hold(directory, record, file)


def hold(directory: Path) -> Hold:
    """Hold an existing slice. The caller has the lock of the directory of slices.

    Raises:
        StateError: its record is damaged.
        OSError: it cannot be opened.
    """
    record = read_record(directory)
    if record is None:
        fix = f"remove it with `hami rm {directory.name}` and create another"
        raise StateError(f"slice {directory.name}", f"its {RECORD} cannot be read", fix)
    keep_from_cleaners(directory.parent.parent)
    return Hold(directory, record, _lock(directory, os.O_RDONLY))


@contextmanager
def create(
    runtime: Path,
    limits: Sequence[CardLimit],
    command: Command,
    library: Path = PACKAGED_LIBRARY,
) -> Iterator[Path]:
    """Create a slice and hold it while the block runs; yields its directory.

    Raises:
        StateError: it cannot be created or, at the end, not be removed.
    """
    held = create_held(runtime, limits, new_record(command), library)
    try:
        yield held.directory
    finally:
        held.release()


def remove_stale(runtime: Path) -> int:
    """Remove the slices that are not held, kept or in use; returns how many.

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
    """Whether any process holds it. The caller has the lock of the directory of slices."""
    try:
        descriptor = os.open(directory / RECORD, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        # A process was killed while it created or removed the slice.
        return False
    try:
        return not try_lock(descriptor)
    finally:
        os.close(descriptor)


def is_abandoned(directory: Path, environments: Environments) -> bool:
    """Whether a slice is not held, not kept and has no process."""
    if is_held(directory):
        return False
    record = read_record(directory)
    if record is not None and (record.keep or record.relaunched_is_running()):
        return False
    return not is_in_use(directory, record, environments)


def is_in_use(directory: Path, record: Record | None, environments: Environments) -> bool:
    """Whether a process has it in its environment, or an entry in its account.

    Both are needed: a process that has not called CUDA yet has no entry, and a process that
    overwrote its environment, or is in another PID namespace, has only the entry.
    """
    created = None if record is None else record.boot_time
    return environments.may_be_in(directory, created) or bool(_members(directory))


def pids_in(directory: Path, environments: Environments) -> frozenset[int]:
    """The processes in it that are in our PID namespace."""
    here = pid_namespace()
    members = {pid for namespace, pid in _members(directory) if namespace == here}
    return environments.inside.get(str(directory), frozenset()) | members


def oldest(directories: Iterable[Path]) -> float:
    """When the oldest of these slices was created, in seconds since boot; 0 = unknown."""
    records = [read_record(directory) for directory in directories]
    return min((record.boot_time if record else 0.0 for record in records), default=0.0)


def end(directory: Path, record: Record | None) -> None:
    """Remove a slice, and keep its summary. The caller has the lock of the directory of slices."""
    summary.keep(directory, record)
    remove_files(directory)


def remove_files(directory: Path) -> None:
    """Remove a slice's directory; failures are ignored."""
    with suppress(OSError):
        for path in directory.iterdir():
            if path.name.startswith(WITHIN):
                shutil.rmtree(path)
            else:
                path.unlink()
        directory.rmdir()


def _fill(
    directory: Path,
    limits: Sequence[CardLimit],
    record: Record,
    driver_memory: Mapping[str, DriverMemory],
) -> BinaryIO:
    """Write the files of a slice. The record is written last; returns it open and locked."""
    rows = [
        LimitRow(
            row.uuid,
            row.memory,
            row.share,
            row.mode,
            row.priority,
            context_memory=driver_memory.get(row.uuid, UNKNOWN).context,
            granule=driver_memory.get(row.uuid, UNKNOWN).granule,
        )
        for row in limits
    ]
    gang = None if record.gang is None else gang_of_user(os.geteuid(), record.gang)
    LimitsPage.create(directory / LIMITS, rows, gang=gang)
    Account.create(directory / ACCOUNT)
    GrantsPage.create(directory / GRANTS)
    if record.devices is not None:
        (directory / CHOSEN).write_text("".join(f"{uuid}\n" for uuid in record.devices))
    file = _lock(directory, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    record.write(file.fileno())
    return file


def _lock(directory: Path, flags: int) -> BinaryIO:
    """Open and lock the record; programs that we start do not inherit it."""

    def opener(path: str, _flags: int) -> int:
        return os.open(path, flags | os.O_CLOEXEC, 0o600)

    file = open(directory / RECORD, "rb", opener=opener)  # noqa: SIM115
    # No other process can be testing this lock, because we have the lock of the directory.
    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return file


def _members(directory: Path) -> list[tuple[int, int]]:
    """PID namespace and PID of the living processes in its account."""
    try:
        processes = Account.open(directory / ACCOUNT).snapshot().processes
    except (OSError, DamagedFile):
        return []
    return [(process.pid_namespace, process.pid) for process in processes if process.alive]


def _remove_abandoned(slices: Path) -> int:
    orphans = [directory for directory in slices.iterdir() if not is_held(directory)]
    # Reading every process is slow, and usually no slice is orphaned.
    environments = read_environments(oldest(orphans)) if orphans else Environments()
    abandoned = [directory for directory in orphans if is_abandoned(directory, environments)]
    for directory in abandoned:
        end(directory, read_record(directory))
    return len(abandoned)


def _require_unused(slices: Path, name: str) -> None:
    for directory in slices.iterdir():
        record = read_record(directory)
        if record is not None and record.name == name:
            fix = f"slice {directory.name[:12]} has this name: choose another, or join that slice"
            raise InvalidValue("name", name, fix)
