"""The runtime directory: where slices live, and why nobody else can meddle with them.

``/tmp`` belongs to everyone: whoever makes our directory first could hand us files of theirs. So it
must be a real directory, ours, and writable by nobody else, or it is not used.
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
"""Seconds. The lock is held for milliseconds; a holder that was stopped must not hang us."""


def runtime_directory(path: Path) -> Path:
    """The directory, made with mode 0700 where it was missing, and checked.

    Raises:
        StateError: it cannot be made, is not ours, or others may write in it.
    """
    refused = f"runtime directory {path}"
    if ":" in str(path) or not str(path).isprintable():
        fix = "set XDG_RUNTIME_DIR to a path of plain text without a colon"
        raise StateError(refused, "HAMI_SLICE cannot carry its name", fix)
    try:
        # What is there and is no directory is said below.
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        # lstat: a link that someone put there would lead us into a directory of theirs.
        status = path.lstat()
    except OSError as error:
        fix = "make it, or set XDG_RUNTIME_DIR to a directory of yours that can be written"
        raise StateError(refused, error.strerror or str(error), fix) from error
    if not stat.S_ISDIR(status.st_mode):
        raise StateError(refused, "it is not a directory", "remove it")
    if status.st_uid != os.geteuid():
        fix = "remove it, or set XDG_RUNTIME_DIR to a directory of yours"
        raise StateError(refused, f"it belongs to user {status.st_uid}", fix)
    if status.st_mode & 0o022:
        raise StateError(refused, "others may write in it", f"chmod 700 {path}")
    return path


@contextmanager
def usable(path: Path) -> Iterator[None]:
    """What the kernel says against files of ours, as our error.

    Raises:
        StateError: for every ``OSError`` inside.
    """
    try:
        yield
    except OSError as error:
        where = error.filename or path
        fix = "make it writable, with room in it, or set XDG_RUNTIME_DIR to another directory"
        raise StateError(f"slice file {where}", error.strerror or str(error), fix) from error


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the directory's lock: slices are made and removed by one process at a time.

    Raises:
        OSError: it cannot be opened, or is no directory.
        StateError: the lock was not free before the deadline.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + LOCK_DEADLINE
        while not try_lock(descriptor):
            if time.monotonic() > deadline:
                fix = f"find the process that holds it: `fuser {directory}`"
                raise StateError(f"lock of {directory}", "another process keeps it", fix)
            time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Take the file's lock if it is free. The kernel gives it back when the holder ends."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
