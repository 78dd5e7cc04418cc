"""Was a signal sent to us alone, or to all of us?

What ``kill %1``, ``timeout`` or a service manager sends goes to the whole process group, or to
every process it knows of, and so to the program as well; what ``kill PID`` sends is for us to pass
on. The kernel does not say which it was. So a process stands beside us that has every signal
blocked and does nothing: what is pending there was sent to all.
"""

import os
import signal
import time
from pathlib import Path
from typing import NoReturn

from hami_py.errors import StateError

SETTLED = 0.02
"""Seconds. Whoever signals several processes does so one after the other, perhaps interrupted."""


class Witness:
    """A process in our group; it goes when we do, however that is."""

    def __init__(self) -> None:
        """Not with other threads: it is forked."""
        self._pid, self._line = _start()

    def has_seen(self, number: int) -> bool:
        """Whether the signal that we have just got from a process was sent to it, too."""
        time.sleep(SETTLED)
        if not _is_pending(self._pid, number):
            return False
        # Ours may have come several times, as one that is sent to us and to all does.
        while signal.sigtimedwait({number}, 0):
            pass
        self.forget()
        return True

    def forget(self) -> None:
        """Pay no heed to what was sent so far: what is pending stays so, so another takes over."""
        self.end()
        self._pid, self._line = _start()

    def end(self) -> None:
        """Let it go."""
        os.close(self._line)
        # It may have been stopped, with the rest of the group.
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _start() -> tuple[int, int]:
    """Its pid, and the line that keeps it: our end is closed when we end."""
    theirs, ours = os.pipe()
    # Blocked before it is there, so that none can end it.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        child = os.fork()
    except OSError as error:
        fix = "end some of your processes, or raise `ulimit -u`"
        raise StateError("process", f"none can be made: {error.strerror}", fix) from error
    if child == 0:
        _stand_by(theirs)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.close(theirs)
    return child, ours


def _stand_by(line: int) -> NoReturn:
    """What the witness does; whatever happens, it must not go on as a second one of us."""
    try:
        # Nothing of ours may stay open in it: someone may wait for the end of a pipe.
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
