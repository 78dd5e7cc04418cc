"""Has pods that were refused tried again when we hear of room that kube-scheduler has no event for.

kube-scheduler tries a refused pod again when something happens to an object that it watches, else
after five minutes. It watches no quotas, and hears of a deleted pod or a new card sometimes before
we do: then it asks at once, is told of the past, and asks no more. So where something has changed
after a pod was refused, a StorageClass that nobody uses is touched: that is an event, and the right
to it is a right to nothing else.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from hami_py.kube import ApiServer, patch_metadata
from hami_py.kube.errors import KubeError

__all__ = ["Waker", "touching"]

_log = logging.getLogger(__name__)

_PAUSE_S = 1.0
"""At most one write in this time: what has changed meanwhile is one event."""

_FAILED_S = 30.0
"""The pause after one that failed."""

_DEADLINE_S = 10.0


class Waker:
    """Knows whether somebody was refused for what is not so any more. Threads may share it.

    Args:
        touch: makes an event that kube-scheduler hears of; ``None``: nobody is woken.

    Attributes:
        thread: where it wakes, from ``start`` to ``stop``, if it does.
    """

    def __init__(self, touch: Callable[[], None] | None = None) -> None:
        self._touch = touch
        self._lock = threading.Lock()
        self._changes = 0
        # By the extender before this one, whom kube-scheduler may have outlived.
        self._has_refused = True
        self._due = threading.Event()
        self._stopping = threading.Event()
        self.thread = threading.Thread(target=self._run, name="wake", daemon=True)

    @property
    def changes(self) -> int:
        """How often something changed that may make room."""
        return self._changes

    def changed(self) -> None:
        """Something that may make room."""
        with self._lock:
            self._changes += 1
            if self._has_refused:
                self._due.set()

    def refused(self, changes: int) -> None:
        """A pod fits nowhere, by what was known after so many changes."""
        with self._lock:
            self._has_refused = True
            if changes != self._changes:
                self._due.set()

    def start(self) -> None:
        """Begins to wake."""
        if self._touch is not None:
            self.thread.start()

    def stop(self) -> None:
        """Ends that."""
        self._stopping.set()
        self._due.set()
        if self.thread.is_alive():
            self.thread.join(5)

    def wake(self) -> float:
        """Makes the event, if it is due; says for how many seconds to pause then."""
        with self._lock:
            if self._touch is None or not self._due.is_set():
                return 0.0
            self._due.clear()
            self._has_refused = False
        try:
            self._touch()
        except KubeError as error:
            _log.warning("waiting pods are not tried again: %s", error)
            with self._lock:
                self._has_refused = True
                self._due.set()
            return _FAILED_S
        return _PAUSE_S

    def _run(self) -> None:
        while self._due.wait() and not self._stopping.is_set():
            self._stopping.wait(self.wake())


def touching(server: ApiServer, name: str) -> Callable[[], None]:
    """Touches a StorageClass.

    Args:
        server: the API server.
        name: the StorageClass.
    """
    path = f"/apis/storage.k8s.io/v1/storageclasses/{name}"

    def touch() -> None:
        annotations = {"hami.io/woken": str(time.time_ns())}
        patch_metadata(server, path, annotations=annotations, deadline_s=_DEADLINE_S)

    return touch
