"""The coordinator that a test's programs may have started: found, and ended with the test."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from hami_py.config import Settings
from hami_py.slices import Running, running

#: Seconds until one must be there, or have ended; far more than it takes.
DEADLINE = 30.0


def found(runtime: Path) -> Running | None:
    """The one of this runtime directory (``…/hami``), if one runs."""
    return running(Settings(runtime))


def wait_for(runtime: Path, *, other_than: int = 0) -> Running:
    """Wait until one runs that has another pid."""
    until = time.monotonic() + DEADLINE
    while True:
        seen = found(runtime)
        if seen is not None and seen.pid not in (0, other_than):
            return seen
        if time.monotonic() > until:
            raise TimeoutError(f"no coordinator within {DEADLINE} s, but {seen}")
        time.sleep(0.01)


def end(runtime: Path) -> None:
    """End it, if one runs. It is not our child, so its end is the release of the lock."""
    until = time.monotonic() + DEADLINE
    while (seen := found(runtime)) is not None:
        if seen.pid:
            with suppress(ProcessLookupError):
                os.kill(seen.pid, signal.SIGKILL)
        if time.monotonic() > until:
            raise TimeoutError(f"{seen} does not end within {DEADLINE} s")
        time.sleep(0.001)
