"""Which connections are let in, and how long one may take to ask.

uvicorn counts connections where a request has come, and answers all of them with 503 while they are
too many, those that are in use too; one that never asks it never closes. So whoever opened as many
as there may be, and was silent, turned a listener off. Here they are counted as they are accepted,
before a handshake has cost anything, and those that are open go on being answered.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["LimitedServer", "Limits"]

_SHARE = 3
"""A peer is let in while it has fewer than so many times the connections that are free: one alone
gets three quarters of all, the next one three quarters of what that leaves, and so on."""

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

    def _run_beside(self, work: Coroutine[None, None, None]) -> None:
        # The loop itself keeps tasks weakly only.
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError:
                await asyncio.sleep(_PAUSE_S)
                continue
            peer = str(address[0])
            if not self._has_room(peer):
                accepted.close()
                continue
            connection = _Connection(self, self._limits.head_s, self._forget)
            self._peers[connection] = peer
            self._run_beside(self._open(connection, accepted))

    def _has_room(self, peer: str) -> bool:
        free = self._limits.connections - len(self._peers)
        return list(self._peers.values()).count(peer) < _SHARE * free

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
    """One connection. uvicorn itself closes it where it is idle behind an answer."""

    def __init__(
        self, server: LimitedServer, head_s: float, lost: Callable[[_Connection], None]
    ) -> None:
        super().__init__(
            config=server.config,
            server_state=server.server_state,
            app_state=server.lifespan.state,
        )
        self.is_made = False
        self._head_s = head_s
        self._lost = lost
        # What TLS takes of it is gone.
        self._first_head_at = self.loop.time() + head_s
        self._until_head: asyncio.TimerHandle | None = None

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
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and self._until_head is None:
            self._until_head = self.loop.call_later(self._head_s, self.transport.abort)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        if self._until_head is not None:
            self._until_head.cancel()
            self._until_head = None
