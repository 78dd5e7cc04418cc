"""Listening, on uvicorn: the HTTP parser is httptools', the loop uvloop's where it is there.

The certificate is exchanged in place: connections made from then on see the new one, those that are
open stay. So nothing is restarted, and nobody is cut off.
"""

from __future__ import annotations

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
from hami_py.serving.connections import LimitedServer, Limits

__all__ = ["Listen", "Server", "Tls"]

_KEEP_ALIVE_S = 120
"""Longer than the API server and kube-scheduler keep an idle connection (90 s), so that it is never
us who closes one just as a request comes."""

_TLS_WAITING = 1 << 15
"""Bytes, of which the kernel makes twice as many, that may wait there for us on a connection with
TLS. They are read at once, into buffers at three layers that stay as long as the connection."""

_DRAIN_S = 10
"""What runs when we are to end may take so long yet."""


@dataclass(frozen=True)
class Listen:
    """Where to listen.

    Attributes:
        host: an address; loopback where only a neighbour in the same pod asks.
        port: 0 takes a free one.
        connections: beyond so many one that waits for its peer is closed, or else the new one, so
            that memory has a bound: with TLS one costs 250 KiB at worst, beside its body. One peer
            gets at most three quarters of them.
        head_s: so long one may take for the head of a request; API servers send it at once.
    """

    host: str = "127.0.0.1"
    port: int = 0
    connections: int = 512
    head_s: float = 10.0


class Server:
    """One application that listens in a thread of its own.

    Attributes:
        port: where it listens.
        thread: where it answers, from ``start`` to ``stop``.
    """

    def __init__(
        self,
        app: ASGIApp,
        listen: Listen,
        *,
        tls: Tls | None = None,
        linger_s: float = 0.0,
    ) -> None:
        """Listens, and does not answer yet.

        Args:
            app: who answers.
            listen: where.
            tls: the certificate; ``None``: plain.
            linger_s: how long, when it is to end, kept connections are told so before it cuts them.
        """
        self._application = _Application(app)
        self._linger_s = linger_s
        config = uvicorn.Config(
            self._application,
            host=listen.host,
            port=listen.port,
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            lifespan="off",
            ws="none",
            # Nobody stands before us whose word on the sender would count.
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_DRAIN_S,
        )
        config.load()
        self._socket = _listening(listen, config.backlog, has_tls=tls is not None)
        self.port: int = self._socket.getsockname()[1]
        limits = Limits(listen.connections, listen.head_s)
        self._server = LimitedServer(config, limits, tls.context if tls is not None else None)
        self.thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        """Begins to answer."""
        self.thread.start()

    def stop(self) -> None:
        """Answers what has come, and ends.

        An idle connection is cut at any moment, perhaps as a request comes, which then has failed:
        who asks does not know whether it was read, and must not ask again. So those that are in use
        end with an answer that says so.
        """
        self._application.is_ending = True
        until = time.monotonic() + self._linger_s
        while self._server.server_state.connections and time.monotonic() < until:
            time.sleep(0.05)
        self._server.should_exit = True
        if self.thread.is_alive():
            self.thread.join(_DRAIN_S + 5)
        self._socket.close()

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])


class _Application:
    """Another's, whose answers end their connections once ``is_ending``."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.is_ending = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def say(message: Message) -> None:
            if self.is_ending and message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        await self._app(scope, receive, say)


def _listening(listen: Listen, backlog: int, *, has_tls: bool) -> socket.socket:
    # uvicorn's own would write the reason to standard error, and end with a number.
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    listening = socket.socket(family)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if has_tls:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _TLS_WAITING)
        listening.bind((listen.host, listen.port))
        # Whoever comes before the first answer waits, and is not turned away.
        listening.listen(backlog)
    except (OSError, ValueError) as error:
        listening.close()
        why = getattr(error, "strerror", None) or str(error)
        place = f"listening on {listen.host}:{listen.port}"
        raise StateError(place, why, "name another address") from error
    return listening


class Tls:
    """What a listener shows; it can be changed while connections are made.

    A context is not changed once connections begin with it: between its new certificate and its new
    key it would have none, and a handshake then would fail. So each certificate has a context, and
    the listener's own only says which.

    Attributes:
        context: the listener's.
    """

    def __init__(self) -> None:
        self.context = _context()
        self._shown: ssl.SSLContext | None = None
        # It is called for clients that name no server, too.
        self.context.sni_callback = self._choose

    def show(self, certificate: str, key: str) -> None:
        """Connections made from now on see this certificate.

        ssl reads files alone, so the key is on disk for the moment, readable by us only.
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
