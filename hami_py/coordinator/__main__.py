"""The coordinator's process.

    python -m hami_py.coordinator RUNTIME    # in the foreground
    python -I -S …/hami_py/coordinator/__main__.py --detach RUNTIME    # as it is started by others

The work itself is ``_native.coordinate``. Here is what makes it one process per runtime directory
that is in nobody's way: it has the lock, or it ends; it belongs to no terminal, group or parent; it
ends by itself when there has been no slice for a while; and it keeps nothing, so that it can be
killed at any time. As it may be there for days it imports next to nothing: this file is run by its
path, so that the package's own ``__init__`` with all that it needs stays out of memory.
"""

import fcntl
import os
import resource
import signal
import sys
import time
from types import ModuleType

LOG_BYTES = 16 << 10
"""No file grows beyond this by what it writes."""

LINGER = 10.0
"""Seconds without a slice after which it ends; a job queue starts the next program before."""

_DEADLINE = 5.0
"""Seconds. Whoever only asks who has the lock holds it for microseconds."""


def main(arguments: list[str]) -> int:
    """Coordinate, unless somebody does; the exit code.

    Detached, it returns to whoever started it once it has the lock.
    """
    *options, runtime = arguments or [""]
    if options not in ([], ["--detach"]) or not runtime.startswith("/"):
        usage = "usage: python -m hami_py.coordinator [--detach] RUNTIME (an absolute path)"
        print(usage, file=sys.stderr)
        return 2
    from hami_py.coordinator import LOCK, LOG  # noqa: PLC0415

    # What a starter blocks or ignores is not meant for us; Ctrl-C ends us without a word.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    lock = take_lock(os.path.join(runtime, LOCK))  # noqa: PTH118
    if lock is None:
        return 0
    # Before anybody is told that one runs: what fails here is seen by the starter.
    from hami_py._native import coordinate  # noqa: PLC0415

    if options:
        _detach(lock, os.path.join(runtime, LOG))  # noqa: PTH118
    else:
        _sign(lock, os.getpid())
    coordinate(runtime, LINGER)
    return 0


def take_lock(path: str) -> int | None:
    """The lock, open; None where another coordinator has it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    lock = os.open(path, flags, 0o600)
    deadline = time.monotonic() + _DEADLINE
    while True:
        if _try(lock, fcntl.LOCK_EX):
            return lock
        # Who looks shares it for an instant; who coordinates does not.
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
    """Write down who has the lock."""
    from hami_py.version import VERSION  # noqa: PLC0415

    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{pid} {VERSION}\n".encode(), 0)


def _detach(lock: int, log: str) -> None:
    """Go on as a process of nobody's; the lock is taken as long as one of the two lives."""
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


def _alone() -> None:
    """Let modules of the package be found here without the package itself."""
    package = ModuleType("hami_py")
    ours = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    package.__path__ = [os.path.dirname(ours)]  # noqa: PTH120
    sys.modules.setdefault("hami_py", package)


if __name__ == "__main__":
    _alone()
    sys.exit(main(sys.argv[1:]))
