"""One agent, or one service of a machine without Kubernetes, has the cards at a time.

During an upgrade the new agent starts beside the old one (``maxSurge`` in deploy/node). It waits
for the old one's end, and is ready meanwhile: the old one is only ended when the new one is ready.
The kernel releases the lock when its holder dies. The file says who has it.
"""

import fcntl
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from hami_py.errors import state_errors
from hami_py.node.paths import Paths

_log = logging.getLogger(__name__)

_POLL_S = 0.02

AGENT, MACHINE = "the node agent of Kubernetes", "the service hami machine"


@contextmanager
def node_lock(paths: Paths, stopping: threading.Event, who: str = AGENT) -> Iterator[bool]:
    """Wait for the lock of the machine, and hold it; False = ``stopping`` was set first.

    Raises:
        StateError: its file cannot be opened.
    """
    with state_errors(f"lock of {who}", "run it as root"):
        paths.state.mkdir(mode=0o755, parents=True, exist_ok=True)
        lock = paths.agent_lock.open("a+")
    with lock:
        has_told = False
        while not stopping.is_set():
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                lock.truncate(0)
                print(who, file=lock, flush=True)
                break
            if not has_told:
                _log.info("%s is active on this node; this one waits for its end", holder(paths))
                has_told = True
            stopping.wait(_POLL_S)
        yield not stopping.is_set()


def holder(paths: Paths) -> str | None:
    """Who has the lock of the machine; None = nobody."""
    with suppress(FileNotFoundError), paths.agent_lock.open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return lock.read().strip() or "another agent"
    return None
