"""One deadline for all of an answer, and not one for each read of it.

A socket's timeout begins anew with each read, so a server that sends a byte from time to time is
never too slow, neither with the head of its answer nor with the body. Here each read has what is
left of the whole: the answer is read through a source that sets the timeout before it reads. Which
deadline that is, is the asking thread's: urllib3 and the client above it pass on a number alone.
"""

from __future__ import annotations

import contextlib
import io
import socket
import threading
import time
from collections.abc import Iterator
from http.client import HTTPResponse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from urllib3 import PoolManager
    from urllib3.connectionpool import HTTPConnectionPool

__all__ = ["Deadline", "keep_deadlines"]


class Deadline:
    """How long an answer may take yet.

    Args:
        deadline_s: all of it, from now.
    """

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._ends_at = time.monotonic() + deadline_s
        self._silence_s: float | None = None

    def bound_silence(self, silence_s: float) -> None:
        """From now on it may take for ever, but never be silent for longer than this."""
        self._silence_s = silence_s

    def left_s(self) -> float:
        """How long the next read may take; more than 0.

        Raises:
            TimeoutError: no longer.
        """
        if self._silence_s is not None:
            return self._silence_s
        left_s = self._ends_at - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"not whole after {self._deadline_s:g} s")
        return left_s

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """What this thread asks for in here has this deadline, also when it is read later."""
        _asking.deadline = self
        try:
            yield
        finally:
            _asking.deadline = None


class _Asking(threading.local):
    deadline: Deadline | None = None


_asking = _Asking()


def keep_deadlines(manager: PoolManager) -> None:
    """Makes the connections of a manager keep the deadline of the thread that asks."""
    pools = manager.pool_classes_by_scheme
    manager.pool_classes_by_scheme = {scheme: _keeping(pool) for scheme, pool in pools.items()}


def _keeping(pool: type[HTTPConnectionPool]) -> type[HTTPConnectionPool]:
    plain: Any = pool.ConnectionCls

    class Connection(plain):  # type: ignore[misc]
        response_class = _Response

        def connect(self) -> None:
            super().connect()
            # A handshake has a timeout of its own. Nothing is sent for which nobody waits any more.
            if _asking.deadline is not None:
                _asking.deadline.left_s()

    class Pool(pool):  # type: ignore[misc, valid-type]
        ConnectionCls = Connection

    return Pool


class _Response(HTTPResponse):
    def __init__(
        self,
        sock: socket.socket,
        debuglevel: int = 0,
        method: str | None = None,
        url: str | None = None,
    ) -> None:
        deadline = _asking.deadline
        source: Any = sock if deadline is None else _Source(sock, deadline)
        super().__init__(source, debuglevel, method, url)


class _Source:
    """What an answer is read from: of a socket no more is asked for."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._sock = sock
        self._deadline = deadline

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(_Reads(self._sock, self._deadline))


class _Reads(io.RawIOBase):
    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._sock = sock
        self._deadline = deadline
        # The socket stays open until this, too, is closed.
        self._file = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int | None:  # type: ignore[override]
        self._sock.settimeout(self._deadline.left_s())
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()
