"""The node's coordinator: a child process of the agent, started again when it ends.

It is the same program that `hami run` starts, without an end of its own. It needs processor time
within a millisecond, so the agent's pod has no CPU limit.
"""

import logging
import subprocess
import sys
import time
from pathlib import Path

from hami_py import coordinator

_log = logging.getLogger(__name__)

_PROGRAM = Path(coordinator.__file__).with_name("__main__.py")

_PAUSE_S = 1.0
"""The shortest time between two starts; without a coordinator each process keeps to its own
share."""

_END_S = 5.0


class Coordinator:
    """The coordinator of a runtime directory.

    The kernel kills it when the thread that called ``check`` ends, so one thread makes all calls.

    Args:
        runtime: the runtime directory.
    """

    def __init__(self, runtime: Path) -> None:
        self._runtime = runtime
        self._child: subprocess.Popen[bytes] | None = None
        self._began = float("-inf")

    def check(self) -> None:
        """Start it if it does not run. Call this regularly."""
        if self._child is not None:
            if self._child.poll() is None:
                return
            _log.warning("the coordinator ended with %s", self._child.returncode)
            self._child = None
        now = time.monotonic()
        if now - self._began >= _PAUSE_S:
            self._began = now
            self._child = subprocess.Popen(
                # All that it needs is beside it.
                [sys.executable, "-I", "-S", str(_PROGRAM), "--child", str(self._runtime)],
                stdin=subprocess.DEVNULL,
            )

    def stop(self) -> None:
        """End it. Programs keep to their own shares until another one runs."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait(_END_S)
