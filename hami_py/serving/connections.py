"""Which connections are let in, which make room for others, and how long one may take to ask.

uvicorn counts connections where a request has come, and answers all of them with 503 while they are
too many, those that are in use too; one that never asks it never closes. So whoever opened as many
as there may be, and was silent, turned a listener off. Here they are counted as they are accepted,
before a handshake has cost anything, and those that are open go on being answered.

Where there is no room for one more, one that waits for its peer makes room: HTTP lets a server
close an idle connection at any time, and Go's clients (API server, kube-scheduler, kubelet) open
another. A request whose head is there is never cut. The one that goes is of the newcomer's own
peer, or of a peer that has more connections than the newcomer's: of those the peer that has most,
and there the one that has waited longest, be it silent, kept, or in the middle of a head. So
whoever comes from a few addresses with hundreds of connections can

- not keep anybody from asking: a peer that has fewer gets in as long as one of the others' waits;
- not close a connection of a peer that has fewer than theirs: their own go first.

With as many addresses as there may be connections each peer keeps one, and only the longest silence
decides: an idle one is closed then (a request that is on its way to it fails), and a new one only
if as many others come within the moment that its request takes. What does hold its place is a
request whose head is there: one whose body does not come for as long as ``routes`` waits. Where all
are of that kind the next one is turned away.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["LimitedServer", "Limits"]

_SHARE = 3
"""A peer is let in while it has fewer than so many times the connections that are free: one alone
gets three quarters of all, the next one three quarters of what that leaves, and so on. Beyond that
another has to make room."""

_PAUSE_S = 1.0
"""Where accepting failed (no file descriptor is left), it is tried again after so long."""


@dataclass(frozen=True)
class Limits:
    """What a listener lets in.

    Attributes:
        connections: at most so many at once, of all peers.
        head_s: a connection is closed that has not sent a whole request head so long after it was
            accepted, and after the first byte of each later request.
    """

    connections: int
    head_s: float


class LimitedServer(uvicorn.Server):
    """uvicorn's server, but that it accepts connections itself."""

    def __init__(
        self, config: uvicorn.Config, limits: Limits, tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(config)
        self._limits = limits
        self._tls = tls
        self._peers: dict[_Connection, str] = {}
        self._running: set[asyncio.Task[None]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to accept."""
        await self.lifespan.startup()
        self.servers = []
        for listening in sockets or ():
            listening.setblocking(False)
            self._run_beside(self._accept(listening))
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accepts no more, and lets uvicorn end what is open."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await super().shutdown(sockets)

    def _run_beside(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        # The loop itself keeps tasks weakly only.
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError:
                await asyncio.sleep(_PAUSE_S)
                continue
            # Accepting does not wait while more are there. What has come on open ones is read
            # first, so that one with a request does not look as if it were idle.
            await asyncio.sleep(0)
            peer = str(address[0])
            if not self._make_room(peer):
                accepted.close()
                continue
            connection = _Connection(self, self._limits.head_s, self._forget)
            self._peers[connection] = peer
            connection.opening = self._run_beside(self._open(connection, accepted))

    def _make_room(self, peer: str) -> bool:
        free = self._limits.connections - len(self._peers)
        counts = Counter(self._peers.values())
        if counts[peer] < _SHARE * free:
            return True
        waiting = [
            (counts[other], -connection.waits_since, connection)
            for connection, other in self._peers.items()
            if (other == peer or counts[other] > counts[peer]) and connection.is_waiting
        ]
        if not waiting:
            return False
        *_, longest = max(waiting, key=lambda each: each[:2])
        longest.cut()
        self._forget(longest)
        return True

    async def _open(self, connection: _Connection, accepted: socket.socket) -> None:
        handshake_s = self._limits.head_s if self._tls is not None else None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection, accepted, ssl=self._tls, ssl_handshake_timeout=handshake_s
            )
        except OSError:
            # The handshake has failed; the loop has closed the connection.
            pass
        finally:
            if not connection.is_made:
                self._forget(connection)

    def _forget(self, connection: _Connection) -> None:
        self._peers.pop(connection, None)


class _Connection(HttpToolsProtocol):
    """One connection. uvicorn itself closes it where it is idle behind an answer.

    Attributes:
        is_made: a request can come, behind a handshake where there is one.
        opening: the task in which that is done.
        waits_since: when it was accepted, was answered or began to send a head: the last of them.
    """

    def __init__(
        self, server: LimitedServer, head_s: float, lost: Callable[[_Connection], None]
    ) -> None:
        super().__init__(
            config=server.config,
            server_state=server.server_state,
            app_state=server.lifespan.state,
        )
        self.is_made = False
        self.opening: asyncio.Task[None] | None = None
        # Not the loop's clock: uvloop's has milliseconds, and many are answered in one.
        self.waits_since = time.monotonic()
        self._head_s = head_s
        self._lost = lost
        # What TLS takes of it is gone.
        self._first_head_at = self.loop.time() + head_s
        self._until_head: asyncio.TimerHandle | None = None
        self._has_begun = False

    @property
    def is_waiting(self) -> bool:
        """Whether it is its peer's turn: no request is here whole, and the last answer is gone."""
        if not self.is_made:
            return True
        if not self._is_between():
            return False
        # Whoever takes none of an answer for so long does not want it.
        is_sent = self.transport.get_write_buffer_size() == 0
        return is_sent or time.monotonic() - self.waits_since > self._head_s

    def cut(self) -> None:
        """Ends it at once."""
        if self.is_made:
            self.transport.abort()
        elif self.opening is not None:
            self.opening.cancel()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.is_made = True
        self._until_head = self.loop.call_at(self._first_head_at, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_waiting()
        self._lost(self)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # Not where the parser begins a request: it skips empty lines before one, and each of them
        # ends uvicorn's wait for the next request.
        if not self._is_between():
            return
        if self._until_head is None:
            self._until_head = self.loop.call_later(self._head_s, self.transport.abort)
        if not self._has_begun:
            # Others have been silent for longer; once, or a byte now and then would keep it so.
            self._has_begun = True
            self.waits_since = time.monotonic()

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._stop_waiting()
        self._has_begun = False

    def on_response_complete(self) -> None:
        self.waits_since = time.monotonic()
        super().on_response_complete()

    def _is_between(self) -> bool:
        """Whether no request is here whose head is whole and whose answer is not."""
        return self.cycle is None or self.cycle.response_complete

    def _stop_waiting(self) -> None:
        if self._until_head is not None:
            self._until_head.cancel()
            self._until_head = None
