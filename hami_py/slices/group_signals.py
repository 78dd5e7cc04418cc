"""Finding out whether a signal was sent to us alone or to the whole process group.

``kill %1``, ``timeout`` and service managers signal the whole process group, and so the program
too. A signal from ``kill PID`` must be passed on to the program. The kernel does not tell the two
apart. So a second process in our group, the observer, blocks all signals and does nothing: a signal
that is pending there was sent to the group.
"""

import os
import signal
import time
from pathlib import Path
from typing import NoReturn

from hami_py.errors import StateError

DELIVERY_TIME = 0.02
"""Seconds. A sender signals several processes one after the other, and may be interrupted."""


class GroupObserver:
    """A process in our group that exits when we do, however we end."""

    def __init__(self) -> None:
        """Fork the observer; no other threads may run."""
        self._pid, self._line = _start()

    def has_received(self, number: int) -> bool:
        """Whether the observer, too, has received the signal that we just received."""
        time.sleep(DELIVERY_TIME)
        if not _is_pending(self._pid, number):
            return False
        # We may have received it several times, for example once alone and once as a group.
        while signal.sigtimedwait({number}, 0):
            pass
        self.reset()
        return True

    def reset(self) -> None:
        """Forget the signals so far. Pending signals stay pending, so this replaces the process."""
        self.close()
        self._pid, self._line = _start()

    def close(self) -> None:
        """End the observer."""
        os.close(self._line)
        # SIGKILL, because it may be stopped with the rest of the group.
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _start() -> tuple[int, int]:
    """Its pid, and our end of the pipe that keeps it alive; the kernel closes it when we exit."""
    theirs, ours = os.pipe()
    # Signals are blocked before the fork, so that none can end the observer.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        child = os.fork()
    except OSError as error:
        fix = "end some of your processes, or raise `ulimit -u`"
        raise StateError("fork", error.strerror or str(error), fix) from error
    if child == 0:
        _stand_by(theirs)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.close(theirs)
    return child, ours


def _stand_by(line: int) -> NoReturn:
    """The observer's process; whatever happens, it must not continue as a copy of us."""
    try:
        # It must keep no file of ours open: another process may wait for the end of a pipe.
        os.dup2(line, 0)
        os.closerange(1, 1 + max(int(path.name) for path in Path("/proc/self/fd").iterdir()))
        os.read(0, 1)
    finally:
        os._exit(0)


def _is_pending(pid: int, number: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    pending = status.partition("ShdPnd:")[2].split()
    return bool(pending) and bool(int(pending[0], 16) >> (number - 1) & 1)
