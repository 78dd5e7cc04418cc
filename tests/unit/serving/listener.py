"""A listener for the tests of ``hami_py.serving``, with clients at several addresses."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable

from starlette.routing import Router

from hami_py.serving import Listen, Server, Tls, json_route, page
from hami_py.webhook.certificates import Certificates, Lifetimes, bundle, step

HERE = "127.0.0.1"
ELSEWHERE = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
#: Seconds; no test waits so long.
LONG = 60.0
SHORT = 1.5
#: Bytes; more than the kernels at both ends hold of a connection.
LARGE = 64 << 20

HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
BODY = b'"abc"'
ASKS = b"POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Listener:
    """A listener, and connections to it from several addresses."""

    def __init__(self, connections: int, head_s: float, *, has_tls: bool) -> None:
        tls, self._trusting = None, None
        if has_tls:
            made = step(Certificates(), [HERE], time.time(), Lifetimes())
            assert made.serving is not None
            tls = Tls()
            tls.show(made.serving.certificate, made.serving.key)
            self._trusting = ssl.create_default_context(cadata=bundle(made))
        size = json_route("/size", json.loads, len, most_bytes=100)
        large = page("/large", lambda: (200, "x" * LARGE))
        held = json_route("/held", json.loads, self._hold, most_bytes=100, blocks=True)
        app = Router([page("/", lambda: (200, "here\n")), size, large, held])
        #: Until it is set, requests to ``/held`` get no response.
        self.goes_on = threading.Event()
        self.server = Server(app, Listen(HERE, 0, connections, head_s), tls=tls)
        self.server.start()
        self._opened = contextlib.ExitStack()

    def silent(self, source: str = HERE) -> socket.socket:
        """A connection on which nothing has been sent, no handshake either."""
        link = socket.create_connection(
            (HERE, self.server.port), timeout=LONG, source_address=(source, 0)
        )
        return self._opened.enter_context(link)

    def ready(self, source: str = HERE) -> socket.socket:
        """A connection on which a request can be sent."""
        link = self.silent(source)
        if self._trusting is None:
            return link
        return self._opened.enter_context(self._trusting.wrap_socket(link, server_hostname=HERE))

    def idle(self, source: str = HERE) -> socket.socket:
        """A connection on which a request has been answered."""
        link = self.ready(source)
        assert asked(link)
        return link

    def used(self, source: str = HERE) -> socket.socket:
        """A connection with a request whose head is there; it is answered behind ``BODY``."""
        link = self.ready(source)
        link.sendall(ASKS)
        assert link.recv(len(CONTINUE)) == CONTINUE
        return link

    def is_answered(self, source: str = HERE) -> bool:
        """Whether a new connection from there is let in; it is closed again."""
        try:
            with self.ready(source) as link:
                return asked(link)
        except OSError:
            return False

    def _hold(self, body: str) -> int:
        assert self.goes_on.wait(LONG)
        return len(body)

    def end(self) -> None:
        self.goes_on.set()
        self._opened.close()
        self.server.stop()
        assert not self.server.thread.is_alive()


Open = Callable[..., Listener]


def asked(link: socket.socket, request: bytes = HEAD) -> bool:
    """Whether a request is answered with 200; the connection stays."""
    link.sendall(request)
    return is_fine(link)


def is_fine(link: socket.socket) -> bool:
    """Whether the next answer there is 200."""
    answer = http.client.HTTPResponse(link)
    try:
        answer.begin()
        answer.read()
    except http.client.HTTPException:
        return False
    return answer.status == 200


def is_closed(link: socket.socket) -> bool:
    """Waits until the other side has closed it, or sends something."""
    try:
        return link.recv(1) == b""
    except (ConnectionError, ssl.SSLError):
        return True
