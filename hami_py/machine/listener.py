"""The socket of the service: requests of the machine's users, one packet each.

The kernel says who asks: the peer's user and process on this machine, whatever the peer's user
namespace shows it. A connection is for one request soon after it was made; so nobody can keep the
service from others by holding connections, and half a request does not exist.
"""

from __future__ import annotations

import errno
import logging
import selectors
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hami_py.errors import StateError
from hami_py.machine.users import user_of

_log = logging.getLogger(__name__)

LARGEST = 16 << 10
"""Bytes of a request."""

_PER_USER, _ALL = 8, 128
"""Open connections of a user, and of all users; root always gets one."""

_NO_USER = -1
"""Numbers that are no users count as one."""

_PATIENCE_S = 1.0
"""How long a connection may wait with its request."""

_END_S = 2.0

_PAUSE_S = 0.05

_CREDENTIALS = struct.Struct("3i")
"""``struct ucred``: pid, uid, gid (unix(7))."""


@dataclass(frozen=True)
class Peer:
    """The process that asks, and its user, as the kernel reports them.

    Attributes:
        pid: the process that has connected; 0 = not of our PID namespace.
        uid: its user when it connected.
    """

    pid: int
    uid: int


class Listener:
    """Listens, and answers each request in turn, in a thread.

    Args:
        path: where the socket is; one of an earlier service is replaced.
        answer: the answer to a request. It may not raise.
    """

    def __init__(self, path: Path, answer: Callable[[Peer, bytes], bytes]) -> None:
        self._path, self._answer = path, answer
        self._selector = selectors.DefaultSelector()
        self._since: dict[socket.socket, tuple[Peer, float, int]] = {}
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="socket", daemon=True)

    def start(self) -> None:
        """Begin to listen.

        Raises:
            StateError: there can be no socket at the path.
        """
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            self._path.unlink(missing_ok=True)
            self._listener.bind(str(self._path))
            # The peer is known by its credentials, not by what it may open.
            self._path.chmod(0o666)
            self._listener.listen(_ALL)
        except OSError as error:
            self._listener.close()
            fix = "check its directory"
            raise StateError(f"socket {self._path}", error.strerror or str(error), fix) from error
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread.start()

    def stop(self) -> None:
        """End, and remove the socket: programs that start now find no service."""
        self._path.unlink(missing_ok=True)
        self._is_stopping = True
        # It wakes the thread.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(_END_S)
        for connection in list(self._since):
            self._close(connection)
        self._selector.close()
        self._listener.close()

    def _run(self) -> None:
        while not self._is_stopping:
            # One request of each connection in turn: a user with many delays others by these few.
            for key, _ in self._selector.select(_PATIENCE_S):
                if key.fileobj is self._listener:
                    # All that wait: who connects fastest would else have the whole queue.
                    for _ in range(_ALL):
                        if not self._accept():
                            break
                elif isinstance(key.fileobj, socket.socket):
                    self._serve(key.fileobj)
            late = time.monotonic() - _PATIENCE_S
            for connection, (_, since, _) in list(self._since.items()):
                if since < late:
                    self._close(connection)

    def _accept(self) -> bool:
        """Accept a connection; whether there was one."""
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            # Without free descriptors it stays ready, and others end meanwhile.
            time.sleep(_PAUSE_S if error.errno in (errno.EMFILE, errno.ENFILE) else 0)
            return False
        with suppress(OSError):
            found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            pid, uid, _ = _CREDENTIALS.unpack(found)
            # A user has many subordinate numbers.
            counted = uid if user_of(uid).is_known else _NO_USER
            counts = Counter(each for _, _, each in self._since.values())
            if uid != 0 and (counts[counted] >= _PER_USER or counts.total() >= _ALL):
                connection.close()
                return True
            connection.setblocking(False)
            self._since[connection] = Peer(pid, uid), time.monotonic(), counted
            self._selector.register(connection, selectors.EVENT_READ)
        return True

    def _serve(self, connection: socket.socket) -> None:
        peer, _, _ = self._since[connection]
        # A peer that has gone, or that does not read.
        with suppress(OSError):
            # With one byte more, so that a longer request is not taken for its beginning.
            request = connection.recv(LARGEST + 1)
            if request:
                connection.send(self._answer(peer, request))
        self._close(connection)

    def _close(self, connection: socket.socket) -> None:
        del self._since[connection]
        self._selector.unregister(connection)
        connection.close()
