"""Follows a list on the API server in a thread; ``follower`` has the single steps."""

from __future__ import annotations

import threading
import time
from typing import Generic, TypeVar

from hami_py.kube.followed import Followed
from hami_py.kube.follower import Follower
from hami_py.kube.server import Stream

T = TypeVar("T")


class Reflector(Generic[T]):
    """Follows one list in its own thread.

    Args:
        version: the version that the receiver has already (``list_version``); ``None``: none yet.

    Attributes:
        listed: set once a whole list was passed on.
        failure: the error of the last attempt to open the watch; ``None``: it was opened.
    """

    def __init__(self, followed: Followed[T], version: str | None = None) -> None:
        self.listed = threading.Event()
        self.failure: Exception | None = None
        self._is_open = False
        self._follower = Follower(followed)
        self._follower.version = version
        self._stopping = threading.Event()
        self._stream: Stream | None = None
        self._lock = threading.Lock()
        self.thread = threading.Thread(target=self._run, name=f"watch {followed.path}", daemon=True)

    @property
    def undecoded(self) -> int:
        """The number of objects so far that could not be decoded."""
        return self._follower.undecoded

    def start(self) -> None:
        """Starts the thread."""
        self.thread.start()

    def stop(self, deadline_s: float = 5.0) -> None:
        """Ends the thread; the receiver keeps its copy."""
        self._stopping.set()
        with self._lock:
            if self._stream is not None:
                self._stream.stop()
        if self.thread.is_alive():
            self.thread.join(deadline_s)

    def silent_s(self) -> float | None:
        """The seconds since the API server last sent something; ``None``: it never did."""
        heard_at = self._follower.heard_at
        return None if heard_at is None else time.monotonic() - heard_at

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
            except Exception as error:
                # A stream that was stopped ends with the same error as a lost one.
                if not self._stopping.is_set():
                    self.failure = None if self._is_open else error
                    self._stopping.wait(self._follower.failed(error))

    def _follow(self) -> None:
        self._is_open = False
        if self._follower.version is None:
            for _ in self._follower.pages():
                if self._stopping.is_set():
                    return
        self.listed.set()
        stream = self._follower.watch()
        self.failure, self._is_open = None, True
        with self._lock:
            self._stream = stream
        try:
            if self._stopping.is_set():
                return
            for line in stream:
                self._follower.take(line)
            pause_s = self._follower.ended()
        finally:
            with self._lock:
                self._stream = None
        self._stopping.wait(pause_s)
