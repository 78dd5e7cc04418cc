"""Which connections a listener admits, and how long a client may take to send a request's head.

uvicorn has no timeout for a request's head. Its limit for connections (``limit_concurrency``) also
counts idle ones, and while there are too many it answers every request with 503. So a client that
opened that many connections and stayed silent would turn a listener off. ``Connections`` counts a
connection when it is accepted, before a TLS handshake costs anything. When a new one needs room, it
closes a waiting one: one that is idle, is in its handshake, or has sent only part of a head. HTTP
lets a server close an idle connection at any time, and Go's clients (API server, kube-scheduler,
kubelet) then open another. A request whose head is complete is never cut off.

The connection to close belongs to the newcomer's own peer (an IP address), or to a peer that has
more connections than the newcomer's. Of those peers, the one with the most connections loses the
one that has waited longest. So a client with a few addresses and hundreds of connections can

- not keep others out: a peer with fewer connections is admitted as long as one of the client's
  waits;
- not close a connection of a peer that has fewer: the client's own are closed first.

With as many addresses as the listener admits connections, each peer keeps one, and only the longest
wait decides. Then an idle connection is closed (a request that is on its way fails), and a new one
only if as many others arrive while its request is sent. A connection cannot be closed for another
while a complete head waits for its body (``routes`` limits that time). If all are of that kind, the
next connection is refused.

All of this uses public interfaces. uvicorn takes any ``asyncio.Protocol`` for its connections
(``http=``): ``limited`` wraps uvicorn's own in one that admits the connection, lets asyncio
make the TLS handshake, and limits the time of each head. An ASGI application around ours
(``Connections.application``) reports when a request begins and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

_SHARE = 3
"""A peer is admitted while it has fewer than three times as many connections as are free: one peer
alone gets three quarters of all, the next one three quarters of the rest, and so on. After that, a
connection has to be closed for each new one."""


@dataclass(frozen=True)
class Limits:
    """The bounds of a listener.

    Attributes:
        connections: the most connections at once, of all peers together.
        head_s: a connection is closed if it has not sent a complete request head this many seconds
            after it was accepted, or after the first byte of a later request.
    """

    connections: int
    head_s: float


class Connections:
    """The connections of one listener. Only the event loop's thread may use it, but for ``end``."""

    def __init__(self, limits: Limits, tls: ssl.SSLContext | None = None) -> None:
        self.limits = limits
        self.tls = tls
        # By address and port of the peer: as ASGI names the client of a request.
        self._open: dict[tuple[str, int], _Connection] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_ending = False

    def __len__(self) -> int:
        return len(self._open)

    def application(self, app: ASGIApp) -> ASGIApp:
        """The application, such that the connections of its running requests are not closed."""

        async def application(scope: Scope, receive: Receive, send: Send) -> None:
            client = scope.get("client")
            connection = self._open.get(tuple(client)) if client is not None else None
            if connection is None:
                await app(scope, receive, send)
                return
            connection.request_began()
            try:
                await app(scope, receive, send)
            finally:
                connection.request_ended()

        return application

    def end(self) -> None:
        """Admits no more connections, and closes those without a handshake; from any thread."""
        self._is_ending = True
        if self._loop is not None:
            # The loop may be closed already.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._cut_handshakes)

    def admit(self, connection: _Connection) -> bool:
        """Adds a connection, if there is room or another one can be closed for it."""
        self._loop = asyncio.get_running_loop()
        if self._is_ending or not self._make_room(connection.client[0]):
            return False
        self._open[connection.client] = connection
        return True

    def remove(self, connection: _Connection) -> None:
        """Removes a connection that was closed."""
        if self._open.get(connection.client) is connection:
            del self._open[connection.client]

    def _make_room(self, peer: str) -> bool:
        free = self.limits.connections - len(self._open)
        counts = Counter(address for address, _ in self._open)
        if counts[peer] < _SHARE * free:
            return True
        waiting = [
            (counts[other], -connection.waits_since, connection)
            for (other, _), connection in self._open.items()
            if (other == peer or counts[other] > counts[peer]) and connection.is_waiting
        ]
        if not waiting:
            return False
        *_, longest = max(waiting, key=lambda each: each[:2])
        longest.cut()
        self.remove(longest)
        return True

    def _cut_handshakes(self) -> None:
        for connection in tuple(self._open.values()):
            if not connection.is_ready:
                connection.cut()


def limited(
    protocol: Callable[..., asyncio.Protocol], connections: Connections
) -> type[asyncio.Protocol]:
    """A protocol of uvicorn's with these limits, for uvicorn's option ``http``."""

    class Limited(_Connection):
        def __init__(self, **options: object) -> None:
            super().__init__(connections, lambda: protocol(**options))

    return Limited


class _Connection(asyncio.Protocol):
    """One connection. uvicorn's protocol begins when a request can arrive.

    Attributes:
        waits_since: when it was accepted, was answered or began to send a head: the latest of them.
    """

    def __init__(
        self, connections: Connections, make_protocol: Callable[[], asyncio.Protocol]
    ) -> None:
        self.client = ("", 0)
        # Not the loop's clock: uvloop's counts milliseconds, and many answers fit into one.
        self.waits_since = time.monotonic()
        self._connections = connections
        self._head_s = connections.limits.head_s
        self._make_protocol = make_protocol
        self._loop = asyncio.get_running_loop()
        self._handshake: asyncio.Task[Any] | None = None
        self._protocol: asyncio.Protocol | None = None
        self._until_head: asyncio.TimerHandle | None = None
        self._requests = 0
        self._running = 0
        self._is_parsing = False
        self._has_begun = False

    @property
    def is_ready(self) -> bool:
        """Whether a request can arrive: there is no handshake, or it is done."""
        return self._protocol is not None

    @property
    def is_waiting(self) -> bool:
        """Whether the peer has to act: no request is complete, and the last answer was sent.

        Over TLS the size of the buffer leaves out what the TCP transport still has. So on a full
        listener an answer of megabytes to a slow peer can be cut; the webhook's are kilobytes.
        """
        if not self.is_ready:
            return True
        if self._running or self._is_parsing:
            return False
        # A peer that reads nothing of an answer for so long does not want it.
        is_sent = self._transport.get_write_buffer_size() == 0
        return is_sent or time.monotonic() - self.waits_since > self._head_s

    def cut(self) -> None:
        """Closes the connection at once."""
        if self._handshake is not None:
            self._handshake.cancel()
        else:
            self._transport.abort()

    def request_began(self) -> None:
        """The application has a request, so its head is complete."""
        self._requests += 1
        self._running += 1
        self._has_begun = False
        self._stop_timer()

    def request_ended(self) -> None:
        """The application has answered."""
        self._running -= 1
        self.waits_since = time.monotonic()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        if self._handshake is None:
            peer = transport.get_extra_info("peername")
            # Without a name, the peer has closed the connection already.
            self.client = (str(peer[0]), int(peer[1])) if peer is not None else self.client
            if peer is None or not self._connections.admit(self):
                transport.abort()
                return
            self._until_head = self._loop.call_later(self._head_s, self.cut)
            if self._connections.tls is not None:
                self._start_handshake(transport, self._connections.tls)
                return
        self._handshake = None
        self._protocol = self._make_protocol()
        self._protocol.connection_made(transport)

    def _start_handshake(self, transport: asyncio.Transport, context: ssl.SSLContext) -> None:
        # This transport would read the first bytes before ``loop.start_tls``, a coroutine, could
        # take them. So the handshake gets a transport of its own on a duplicate of the descriptor,
        # and this one closes its descriptor without having read anything.
        descriptor = transport.get_extra_info("socket").fileno()
        transport.set_protocol(asyncio.Protocol())
        try:
            accepted = socket.socket(fileno=os.dup(descriptor))
        except OSError:
            self._lose()
        else:
            accepted.setblocking(False)
            handshake = self._loop.connect_accepted_socket(
                lambda: self, accepted, ssl=context, ssl_handshake_timeout=self._head_s
            )
            self._handshake = self._loop.create_task(handshake)
            self._handshake.add_done_callback(partial(self._end_handshake, accepted))
        transport.abort()

    def _end_handshake(self, accepted: socket.socket, handshake: asyncio.Task[Any]) -> None:
        if not self.is_ready:
            accepted.close()
            self._lose()
        error = None if handshake.cancelled() else handshake.exception()
        # A handshake that fails is the client's affair; the loop has closed the connection.
        if error is not None and not isinstance(error, OSError):
            raise error

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose()
        if self._protocol is not None:
            self._protocol.connection_lost(exc)

    def _lose(self) -> None:
        self._stop_timer()
        self._connections.remove(self)

    def data_received(self, data: bytes) -> None:
        if self._protocol is None:
            return
        before = self._requests
        self._protocol.data_received(data)
        if not self._running and not self._is_parsing:
            # If the head is complete now, the application starts before the next callback.
            self._is_parsing = True
            self._loop.call_soon(self._data_parsed, before)

    def _data_parsed(self, before: int) -> None:
        self._is_parsing = False
        if self._running or self._requests != before or self._transport.is_closing():
            return
        # Part of a head, or an empty line before one. The time runs from the first byte.
        if self._until_head is None:
            self._until_head = self._loop.call_later(self._head_s, self.cut)
        if not self._has_begun:
            # Once per head: a byte now and then must not make others seem to wait longer.
            self._has_begun = True
            self.waits_since = time.monotonic()

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received() if self._protocol is not None else None

    def pause_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.resume_writing()

    def _stop_timer(self) -> None:
        if self._until_head is not None:
            self._until_head.cancel()
            self._until_head = None
