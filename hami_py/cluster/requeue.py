"""Lets kube-scheduler try refused pods again after changes that it has no event for.

kube-scheduler tries a refused pod again after an event of an object that it watches, or else after
five minutes. It does not watch quotas. It may also see a deleted pod or a new card before the
extender does. Then it calls the extender at once, gets an answer from older state, and does not try
again. So after a change that follows a refusal, the extender touches a StorageClass that
nothing uses. That is an event for kube-scheduler, and the right to write this one object allows
nothing else.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from hami_py.kube import ApiServer, patch_metadata
from hami_py.kube.errors import KubeError

_log = logging.getLogger(__name__)

_PAUSE_S = 1.0
"""The least time between two writes; all changes in between become one event."""

_FAILED_S = 30.0
"""The pause after a write that failed."""

_DEADLINE_S = 10.0


class Requeuer:
    """Makes an event for kube-scheduler when a refused pod may fit now. Threads may share it.

    Args:
        touch: makes an event that kube-scheduler receives; ``None``: no pod is requeued.
    """

    def __init__(self, touch: Callable[[], None] | None = None) -> None:
        self._touch = touch
        self._lock = threading.Lock()
        self._changes = 0
        # kube-scheduler may have started before this extender, whose predecessor refused pods.
        self._has_refused = True
        self._due = threading.Event()
        self._stopping = threading.Event()
        self.thread = threading.Thread(target=self._run, name="requeue", daemon=True)

    @property
    def changes(self) -> int:
        """The number of changes so far that may make room."""
        return self._changes

    def changed(self) -> None:
        """Records a change that may make room."""
        with self._lock:
            self._changes += 1
            if self._has_refused:
                self._due.set()

    def refused(self, changes: int) -> None:
        """Records that no node fits a pod in the state after this number of changes."""
        with self._lock:
            self._has_refused = True
            if changes != self._changes:
                self._due.set()

    def start(self) -> None:
        """Starts the thread."""
        if self._touch is not None:
            self.thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stopping.set()
        self._due.set()
        if self.thread.is_alive():
            self.thread.join(5)

    def requeue(self) -> float:
        """Makes the event, if it is due; returns the seconds to pause afterwards."""
        with self._lock:
            if self._touch is None or not self._due.is_set():
                return 0.0
            self._due.clear()
            self._has_refused = False
        try:
            self._touch()
        except KubeError as error:
            _log.warning("refused pods are not tried again: %s", error)
            with self._lock:
                self._has_refused = True
                self._due.set()
            return _FAILED_S
        return _PAUSE_S

    def _run(self) -> None:
        while self._due.wait() and not self._stopping.is_set():
            self._stopping.wait(self.requeue())


def storage_class_touch(server: ApiServer, name: str) -> Callable[[], None]:
    """A function that writes an annotation of a StorageClass."""
    path = f"/apis/storage.k8s.io/v1/storageclasses/{name}"

    def touch() -> None:
        annotations = {"hami.io/woken": str(time.time_ns())}
        patch_metadata(server, path, annotations=annotations, deadline_s=_DEADLINE_S)

    return touch
