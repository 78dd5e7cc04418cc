"""The runtime directory, which contains the user's slices, and its lock.

It is in ``/tmp``, which a logout leaves alone. ``systemd-tmpfiles`` removes old files from there,
but nothing below a directory that a process has locked (tmpfiles.d(5)). So each process that holds
a slice, and the coordinator, share a lock of the runtime directory (``keep_from_cleaners``).

Anyone can write to ``/tmp``: another user could create our directory first and place files in it.
So the directory is used only if it is a real directory, belongs to this user, and is writable by no
one else.
"""

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hami_py.errors import StateError

LOCK_DEADLINE = 10.0
"""Seconds. A lock is held for milliseconds; a stopped holder must not block us for ever."""


def runtime_directory(path: Path) -> Path:
    """Check the directory, and create it with mode 0700 if it is missing.

    Raises:
        StateError: it cannot be created, belongs to another user, or others may write to it.
    """
    what = f"runtime directory {path}"
    if set(" :$") & set(str(path)) or not str(path).isprintable():
        fix = "set HAMI_RUNTIME_DIR to a path of plain text without spaces, colons and dollar signs"
        raise StateError(what, "LD_PRELOAD cannot contain this path", fix)
    try:
        # If another file has this name, the check below reports it.
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        # lstat, because another user could place a symbolic link here.
        status = path.lstat()
    except OSError as error:
        fix = "create it, or set HAMI_RUNTIME_DIR to a directory that you can write to"
        raise StateError(what, error.strerror or str(error), fix) from error
    if not stat.S_ISDIR(status.st_mode):
        raise StateError(what, "it is not a directory", "remove it")
    if status.st_uid != os.geteuid():
        fix = "remove it, or set HAMI_RUNTIME_DIR to a directory of yours"
        raise StateError(what, f"it belongs to user {status.st_uid}", fix)
    if status.st_mode & 0o022:
        raise StateError(what, "other users may write to it", f"run `chmod 700 {path}`")
    return path


@contextmanager
def usable(path: Path) -> Iterator[None]:
    """Turn every ``OSError`` about a slice's files into a ``StateError``.

    Raises:
        StateError: for every ``OSError`` inside.
    """
    try:
        yield
    except OSError as error:
        where = error.filename or path
        # An error of the account's own names its fix.
        why, _, fix = (error.strerror or str(error)).partition("; ")
        fix = fix or (
            "make it writable and free some space, or set HAMI_RUNTIME_DIR to another directory"
        )
        raise StateError(f"slice file {where}", why, fix) from error


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the directory's lock: one process at a time creates or removes slices.

    Raises:
        OSError: it cannot be opened, or is not a directory.
        StateError: the lock was not free before the deadline.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + LOCK_DEADLINE
        while not try_lock(descriptor):
            if time.monotonic() > deadline:
                fix = f"find the process that holds it: `fuser {directory}`"
                raise StateError(f"lock of {directory}", "another process holds it", fix)
            time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def keep_from_cleaners(directory: Path) -> None:
    """Keep ``systemd-tmpfiles`` from the directory as long as this process lives.

    Raises:
        OSError: it cannot be opened.
    """
    status = directory.stat()
    if (status.st_dev, status.st_ino) in _kept:
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        # A cleaner runs. It has nothing old to remove from a new slice.
        os.close(descriptor)
    else:
        _kept.add((status.st_dev, status.st_ino))


_kept: set[tuple[int, int]] = set()
"""The directories that this process has locked, as device and inode."""


def try_lock(descriptor: int) -> bool:
    """Lock the file if it is free. The kernel unlocks it when the holder exits."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
