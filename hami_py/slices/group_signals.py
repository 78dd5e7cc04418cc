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

END_DEADLINE = 1.0
"""Seconds to wait for the end of a killed process, which a driver that fails may keep."""


class GroupObserver:
    """A process in our group that exits when we do, however we end."""

    def __init__(self) -> None:
        """Fork the observer. Other threads may run: the child calls nothing of theirs.

        Attributes:
            pid: its PID, which changes at a ``reset``.
        """
        self.pid, self._line = _start()

    def received(self) -> set[int]:
        """The signals that the group has received since the last ``reset``."""
        time.sleep(DELIVERY_TIME)
        return _pending(self.pid)

    def reset(self) -> None:
        """Forget the signals so far. Pending signals stay pending, so this replaces the process."""
        self.close()
        self.pid, self._line = _start()

    def close(self) -> None:
        """End the observer."""
        os.close(self._line)
        kill_child(self.pid)


def kill_child(pid: int) -> None:
    """Kill a child of ours, also a stopped one, and wait for its end, up to ``END_DEADLINE``."""
    os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + END_DEADLINE
    while os.waitpid(pid, os.WNOHANG) == (0, 0) and time.monotonic() < until:
        # Linux before 5.3 has no pidfd to wait for with a deadline.
        time.sleep(0.001)


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


def _pending(pid: int) -> set[int]:
    """The pending signals of a process; none if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return set()
    words = status.partition("ShdPnd:")[2].split()
    bits = int(words[0], 16) if words else 0
    return {number for number in signal.valid_signals() if bits >> (number - 1) & 1}
