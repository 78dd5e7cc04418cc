"""The sessions of all users: one for each token and namespace, and a bounded number of them.

A user with a token may open many sessions, and anybody may send made-up tokens. So a session that
needs room takes it from the user with the most sessions, and unknown users count as one. A user
with one session that is in use never loses it.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from hami_py.kube import ApiServer
from hami_py.view.session import Session, SessionSettings

_REFUSED_S = 10.0
"""How long a refused token is remembered, so that it is not asked about at every request."""

_JOIN_S = 5.0

_MOST_ENDING = 4
"""The most sessions that were told to end and still wait for an answer of the API server."""


class Busy(Exception):
    """There is no room for another session now."""


@dataclass
class _Kept:
    session: Session
    since: float


class Sessions:
    """Finds or starts the session of a token.

    Args:
        most: the most sessions. Each has a copy of the cluster's nodes and of its pods with cards.
        most_unknown: the most sessions at once whose token the API server has not judged yet.
    """

    def __init__(
        self,
        server: Callable[[str, str], ApiServer],
        settings: SessionSettings,
        *,
        most: int = 16,
        most_unknown: int = 4,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server, self._settings, self._most, self._clock = server, settings, most, clock
        self._unknown = threading.BoundedSemaphore(most_unknown)
        self._lock = threading.Lock()
        self._kept: dict[bytes, _Kept] = {}
        self._ending: list[Session] = []

    def of(self, token: str, namespace: str) -> Session:
        """The session of a token.

        Raises:
            Busy: there is no room.
        """
        key = hashlib.sha256(f"{namespace} {token}".encode()).digest()
        with self._lock:
            self._forget()
            kept = self._kept.get(key)
            if kept is None:
                kept = self._kept[key] = self._started(token, namespace)
            kept.session.ask()
            return kept.session

    def stop(self) -> None:
        """Ends all sessions."""
        with self._lock:
            sessions = [*(kept.session for kept in self._kept.values()), *self._ending]
            self._kept.clear()
        for session in sessions:
            session.stop()
        for session in sessions:
            session.join(_JOIN_S)

    def _started(self, token: str, namespace: str) -> _Kept:
        if not self._unknown.acquire(blocking=False):
            raise Busy
        # It has an effect once, however often it is called.
        ends = ExitStack()
        ends.callback(self._unknown.release)
        known = ends.close
        try:
            if len(self._kept) >= self._most:
                self._make_room()
            session = Session(self._server(token, namespace), namespace, self._settings, known)
            session.start()
        except BaseException:
            known()
            raise
        return _Kept(session, self._clock())

    def _forget(self) -> None:
        """Drops the sessions that have ended."""
        now = self._clock()
        self._ending = [session for session in self._ending if session.is_running]
        for key, kept in list(self._kept.items()):
            is_fresh = kept.session.refused is not None and now - kept.since < _REFUSED_S
            if not kept.session.is_running and not is_fresh:
                del self._kept[key]

    def _make_room(self) -> None:
        counts = Counter(kept.session.user for kept in self._kept.values())
        key, kept = max(
            self._kept.items(),
            key=lambda item: (counts[item[1].session.user], -item[1].session.asked_at),
        )
        if len(self._ending) >= _MOST_ENDING:
            raise Busy
        is_used = self._clock() - kept.session.asked_at < self._settings.asked_s
        if counts[kept.session.user] == 1 and kept.session.user and is_used:
            raise Busy
        kept.session.stop()
        self._ending.append(kept.session)
        del self._kept[key]
