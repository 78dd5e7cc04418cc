"""One agent is active on a node at a time.

During an upgrade the new agent starts beside the old one (``maxSurge`` in deploy/node). It waits
for the old one's end, and is ready meanwhile: the old one is only ended when the new one is ready.
The kernel releases the lock when its holder dies.
"""

import fcntl
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from hami_py.node.paths import Paths

_log = logging.getLogger(__name__)

_POLL_S = 0.02


@contextmanager
def node_lock(paths: Paths, stopping: threading.Event) -> Iterator[bool]:
    """Wait for the lock of the node's agents, and hold it; False = ``stopping`` was set first."""
    paths.state.mkdir(mode=0o755, parents=True, exist_ok=True)
    with paths.agent_lock.open("a") as lock:
        has_told = False
        while not stopping.is_set():
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if not has_told:
                _log.info("another agent is active on this node; this one waits for its end")
                has_told = True
            stopping.wait(_POLL_S)
        yield not stopping.is_set()
