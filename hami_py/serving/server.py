"""A listener on uvicorn, with httptools' HTTP parser and uvloop's event loop.

The certificate can be replaced while the listener runs: new connections get the new one, and open
connections stay. So a rotation needs no restart and cuts off no client.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hami_py.errors import StateError
from hami_py.serving.connections import Connections, Limits, limited

_log = logging.getLogger(__name__)

_KEEP_ALIVE_S = 120
"""Longer than the API server and kube-scheduler keep an idle connection (90 s), so that the client
closes it, and never the listener just as a request arrives."""

_TLS_RECEIVE_BYTES = 1 << 15
"""The receive buffer of a connection with TLS (the kernel doubles it). Its bytes are read at once
into buffers of three layers, and those stay as long as the connection."""

_DRAIN_S = 10
"""How long requests that are running may take after ``stop``."""


@dataclass(frozen=True)
class Listen:
    """Where to listen.

    Attributes:
        host: an address; loopback if all clients run in the same pod.
        port: 0 chooses a free port.
        connections: the most connections at once, so that memory has a bound: with TLS a connection
            costs up to 250 KiB besides its body. Beyond that a waiting connection is closed, or
            else the new one is refused. One peer gets at most three quarters of them.
        head_s: the most seconds for the head of a request; API servers send it at once.
    """

    host: str = "127.0.0.1"
    port: int = 0
    connections: int = 512
    head_s: float = 10.0


class Server:
    """One application that listens in its own thread."""

    def __init__(
        self,
        app: ASGIApp,
        listen: Listen,
        *,
        tls: Tls | None = None,
        linger_s: float = 0.0,
    ) -> None:
        """Opens the socket; ``start`` begins to answer.

        ``stop`` answers on kept connections for ``linger_s``, and asks to close them, before it
        closes them itself.
        """
        self._closing = _Closing(app)
        self._linger_s = linger_s
        limits = Limits(listen.connections, listen.head_s)
        self._connections = Connections(limits, tls.context if tls is not None else None)
        app = self._connections.application(self._closing)
        config = _config(app, limited(_http_protocol(), self._connections))
        self._socket = _bind(listen, config.backlog, has_tls=tls is not None)
        self.port: int = self._socket.getsockname()[1]
        host = f"[{listen.host}]" if ":" in listen.host else listen.host
        self._where = f"{host}:{self.port}"
        self._server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        """Begins to answer."""
        self.thread.start()
        _log.info("listening on %s", self._where)

    def stop(self) -> None:
        """Answers the requests that have arrived, and ends.

        If the listener closes an idle connection just as a request arrives, that request fails: the
        client does not know whether it was read, and must not repeat it. So connections in use end
        with an answer that tells the client to close.
        """
        self._closing.is_ending = True
        until = time.monotonic() + self._linger_s
        while len(self._connections) and time.monotonic() < until:
            time.sleep(0.05)
        self._connections.end()
        self._server.should_exit = True
        if self.thread.is_alive():
            self.thread.join(_DRAIN_S + 5)
        self._socket.close()
        _log.info("no longer listening on %s", self._where)

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])


class _Closing:
    """An application whose answers end their connections once ``is_ending`` is true."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.is_ending = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_closing(message: Message) -> None:
            if self.is_ending and message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        await self._app(scope, receive, send_closing)


def _config(app: ASGIApp, http: str | type[asyncio.Protocol]) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=http,
        log_config=None,
        # Its lines about the start and the end come from a logger called uvicorn.error.
        log_level=logging.WARNING,
        access_log=False,
        server_header=False,
        date_header=False,
        lifespan="off",
        ws="none",
        # There is no proxy in front of the listener, so a header must not name the client.
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_DRAIN_S,
    )


def _http_protocol() -> type[asyncio.Protocol]:
    """The protocol of uvicorn with the parser in C, as its configuration names it."""

    async def no_application(scope: Scope, receive: Receive, send: Send) -> None:
        raise NotImplementedError

    config = _config(no_application, "httptools")
    config.load()
    return config.http_protocol_class


def _bind(listen: Listen, backlog: int, *, has_tls: bool) -> socket.socket:
    # If uvicorn opened the socket, an error would end the process with a number only.
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    listening = socket.socket(family)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if has_tls:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _TLS_RECEIVE_BYTES)
        listening.bind((listen.host, listen.port))
        # Clients that connect before ``start`` wait instead of being refused.
        listening.listen(backlog)
    except (OSError, ValueError) as error:
        listening.close()
        why = getattr(error, "strerror", None) or str(error)
        what = f"listening on {listen.host}:{listen.port}"
        raise StateError(what, why, "choose another address or port") from error
    return listening


class Tls:
    """The certificate of a listener; it can be replaced while connections are made.

    An ``SSLContext`` in use must not change: between its new certificate and its new key, a
    handshake would fail. So each certificate has its own context, and the listener's context only
    chooses between them.
    """

    def __init__(self) -> None:
        self.context = _context()
        self._shown: ssl.SSLContext | None = None
        # It is called even for clients that send no server name.
        self.context.sni_callback = self._choose

    def show(self, certificate: str, key: str) -> None:
        """Uses this certificate for new connections.

        The ``ssl`` module only reads files, so the key is on disk for a moment, readable only by
        this user.
        """
        context = _context()
        with tempfile.TemporaryDirectory() as folder:
            pem = Path(folder) / "serving.pem"
            pem.touch(0o600)
            pem.write_text(key + certificate)
            context.load_cert_chain(pem)
        self._shown = context

    def _choose(self, connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        if self._shown is not None:
            connection.context = self._shown


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context
