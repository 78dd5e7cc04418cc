"""The directory of a slice: made before the program starts, removed after its last process.

    <runtime>/slices/<id>/limits       what may be used
                          account      what is used
                          slice.json   who made it, for people; its lock says that the owner lives

The owner is the ``hami run`` (or the Python process) that made the slice. It holds the lock of
``slice.json`` as long as it lives, so "has the owner gone" is answered by the kernel, also across
PID namespaces and reused PIDs. A program may leave processes behind that outlive the owner; they
keep the slice, and whoever starts the next slice removes it after they have gone.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path

from hami_py._native import Account, LimitRow, LimitsPage
from hami_py.config import HAMI_SLICE
from hami_py.errors import DamagedFile
from hami_py.model import CardLimit
from hami_py.slices.runtime import locked, runtime_directory, try_lock, usable

LIMITS = "limits"
ACCOUNT = "account"
OWNER = "slice.json"


@contextmanager
def create(runtime: Path, limits: Sequence[CardLimit], command: Sequence[str]) -> Iterator[Path]:
    """The directory of a new slice, removed at the end unless processes in it go on.

    Args:
        runtime: the runtime directory; made where it is missing.
        limits: one row per card.
        command: what will run in it, for people who look at ``slice.json``.

    Raises:
        StateError: it cannot be made or, at the end, not be looked after.
    """
    slices = runtime_directory(runtime) / "slices"
    directory = slices / os.urandom(16).hex()
    with usable(directory):
        slices.mkdir(mode=0o700, exist_ok=True)
        with locked(slices):
            _remove_stale(slices)
            directory.mkdir(mode=0o700)
            owner = _write_owner(directory / OWNER, command)
    try:
        with usable(directory):
            rows = [LimitRow(row.uuid, row.memory, row.share) for row in limits]
            LimitsPage.create(directory / LIMITS, rows)
            Account.create(directory / ACCOUNT)
        yield directory
    finally:
        # Before anything that can fail, so that the next start may remove what we cannot.
        os.close(owner)
        with usable(directory):
            # At the end of a session the whole runtime directory may go before us.
            if directory.exists():
                with locked(slices):
                    if not _is_in_use(directory, _directories_in_use()):
                        _remove(directory)


def remove_stale(runtime: Path) -> int:
    """Remove the slices whose owner and processes have gone; how many there were.

    Raises:
        StateError: the runtime directory cannot be used.
    """
    slices = runtime_directory(runtime) / "slices"
    with usable(slices):
        if not slices.exists():
            return 0
        with locked(slices):
            return _remove_stale(slices)


def _write_owner(path: Path, command: Sequence[str]) -> int:
    """Write ``slice.json`` and keep it open and locked, closed to programs we start."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try_lock(descriptor)
    created = datetime.now(timezone.utc).isoformat(timespec="seconds")
    owner = {"pid": os.getpid(), "command": list(command), "created": created}
    os.write(descriptor, json.dumps(owner).encode(errors="surrogateescape"))
    return descriptor


def _remove_stale(slices: Path) -> int:
    """With the lock held, so that no slice is half made or half removed by another."""
    orphans = [directory for directory in slices.iterdir() if not _has_owner(directory)]
    in_use = _directories_in_use() if orphans else frozenset()
    stale = [directory for directory in orphans if not _is_in_use(directory, in_use)]
    for directory in stale:
        _remove(directory)
    return len(stale)


def _remove(directory: Path) -> None:
    """A slice holds files only. One that cannot be removed must not stand in anyone's way."""
    with suppress(OSError):
        for path in directory.iterdir():
            path.unlink()
        directory.rmdir()


def _has_owner(directory: Path) -> bool:
    try:
        descriptor = os.open(directory / OWNER, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        # Whoever made or removed it was killed half-way.
        return False
    try:
        return not try_lock(descriptor)
    finally:
        os.close(descriptor)


def _is_in_use(directory: Path, in_use: frozenset[str]) -> bool:
    """A process has it in its environment, or still holds a place in its account.

    Both are asked: a process that has not called CUDA yet is in no account, and one that has
    overwritten its environment or lives in another PID namespace is only there.
    """
    if str(directory) in in_use:
        return True
    try:
        return any(process.alive for process in Account.open(directory / ACCOUNT).processes())
    except (OSError, DamagedFile):
        return False


def _directories_in_use() -> frozenset[str]:
    """Every slice directory that a process of ours has in its environment."""
    prefix = HAMI_SLICE.encode() + b"="
    found: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            variables = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            # Another user's, or already gone.
            continue
        for variable in variables:
            if variable.startswith(prefix):
                found.update(os.fsdecode(variable[len(prefix) :]).split(":"))
    return frozenset(found)
