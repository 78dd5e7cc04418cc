"""The coordinator's process.

    python -m hami_py.coordinator RUNTIME    # in the foreground
    python -I -S …/hami_py/coordinator/__main__.py --detach RUNTIME    # as the package starts it
    python -I -S …/hami_py/coordinator/__main__.py --child RUNTIME    # as the node agent starts it

``_native.coordinate`` does the work. This module makes it a single daemon per runtime directory. A
coordinator without the lock exits. It has no terminal, process group or parent. It exits after
there has been no slice for a while; as a child, when the thread that started it ends. It has no
state to lose, so it can be killed at any time. It may run for days, so it imports next to nothing:
this file is run by its path, which keeps the package's ``__init__`` and its imports out of memory.
"""

import fcntl
import os
import resource
import signal
import sys
import time
from types import ModuleType

LOG_BYTES = 16 << 10
"""The largest size of its log file (RLIMIT_FSIZE)."""

LINGER = 10.0
"""Seconds without a slice after which it exits; a job queue starts its next program sooner."""

FOR_EVER = 1e9
"""Seconds that it stays without a slice as a child: more than a machine runs."""

_DEADLINE = 5.0
"""Seconds. A process that only tests the lock holds it for microseconds."""


def main(arguments: list[str]) -> int:
    """Coordinate, unless another coordinator runs; returns the exit code.

    With ``--detach`` the starting process exits as soon as the coordinator has the lock. With
    ``--child`` the coordinator never exits by itself.
    """
    *options, runtime = arguments or [""]
    if options not in ([], ["--detach"], ["--child"]) or not runtime.startswith("/"):
        usage = (
            "usage: python -m hami_py.coordinator [--detach | --child] RUNTIME (an absolute path)"
        )
        print(usage, file=sys.stderr)
        return 2
    from hami_py.coordinator import LOCK, LOG  # noqa: PLC0415

    # The starter's signal mask is not for us; Ctrl-C ends us silently.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    lock = take_lock(os.path.join(runtime, LOCK))  # noqa: PTH118
    if lock is None:
        return 0
    # While it is locked, `systemd-tmpfiles` removes nothing below it (hami_py/slices/runtime.py).
    _try(os.open(runtime, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), fcntl.LOCK_SH)
    # Imported before the pid is written, so that the starter sees a failure of this import.
    from hami_py._native import coordinate  # noqa: PLC0415

    if options == ["--detach"]:
        _detach(lock, os.path.join(runtime, LOG))  # noqa: PTH118
    else:
        _sign(lock, os.getpid())
    if options == ["--child"]:
        coordinate(runtime, FOR_EVER, parent=os.getppid())
    else:
        coordinate(runtime, LINGER)
    return 0


def take_lock(path: str) -> int | None:
    """Take the lock and return its descriptor; None if another coordinator has it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    lock = os.open(path, flags, 0o600)
    deadline = time.monotonic() + _DEADLINE
    while True:
        if _try(lock, fcntl.LOCK_EX):
            return lock
        # A process that tests the lock shares it briefly; a coordinator does not share it.
        if not _try(lock, fcntl.LOCK_SH) or time.monotonic() > deadline:
            os.close(lock)
            return None
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.sched_yield()


def _try(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sign(lock: int, pid: int) -> None:
    """Write the pid and version of the coordinator into the lock file."""
    from hami_py._native import VERSION  # noqa: PLC0415

    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{pid} {VERSION}\n".encode(), 0)


def _detach(lock: int, log: str) -> None:
    """Continue in the background; the lock is held as long as one of the two processes runs."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(log, flags, 0o600)
    child = os.fork()
    if child:
        _sign(lock, child)
        os._exit(0)
    os.setsid()
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for theirs, ours in ((nothing, 0), (descriptor, 1), (descriptor, 2)):
        os.dup2(theirs, ours)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LOG_BYTES, LOG_BYTES))


def _bypass_init() -> None:
    """Make the package's modules importable without running its ``__init__``."""
    package = ModuleType("hami_py")
    ours = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    package.__path__ = [os.path.dirname(ours)]  # noqa: PTH120
    sys.modules.setdefault("hami_py", package)


if __name__ == "__main__":
    _bypass_init()
    sys.exit(main(sys.argv[1:]))
