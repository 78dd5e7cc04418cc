"""A webhook or a scheduler extender of a test: it writes down what Kubernetes sent, and answers.

with Recorder({"/filter": lambda call: {"NodeNames": call.body["NodeNames"]}}) as extender:
    ...
    extender.calls("/filter")[0].body
"""

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

from cluster.certificates import Identity


@dataclass(frozen=True)
class Call:
    """One request: its path and its JSON body; when it came."""

    path: str
    body: Any
    at: float


R = TypeVar("R", bound="Recorder")

#: Answers one call: an object for a 200, or a status code and an object.
Handler = Callable[[Call], Any]


class Recorder:
    """An HTTP server, with TLS where an identity is given; used in `with`. 404 where no handler."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        identity: Identity | None = None,
        *,
        address: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self._handlers, self._calls = handlers, list[Call]()
        self._lock = threading.Condition()
        recorder = self

        class Answering(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Header and body are two writes; else the second waits 40 ms for the other side's ACK.
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                recorder._serve(self)

            def log_message(self, format: str, *arguments: object) -> None:
                """Say nothing."""

        self._server = _Server((address, port), Answering)
        scheme = "http"
        if identity is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(identity.certificate, identity.key)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            scheme = "https"
        self.port = int(self._server.server_address[1])
        self.url = f"{scheme}://{address}:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def calls(self, path: str | None = None) -> list[Call]:
        """The calls so far, to this path or to all."""
        with self._lock:
            return [call for call in self._calls if path in (None, call.path)]

    def wait_for(self, path: str, count: int = 1, deadline: float = 60.0) -> list[Call]:
        """Wait until this many calls came to this path."""
        until = time.monotonic() + deadline
        with self._lock:
            while len(found := [call for call in self._calls if call.path == path]) < count:
                if not self._lock.wait(until - time.monotonic()):
                    raise TimeoutError(f"{len(found)} of {count} calls to {path} in {deadline} s")
        return found

    def _serve(self, request: BaseHTTPRequestHandler) -> None:
        length = int(request.headers.get("Content-Length") or 0)
        body = json.loads(request.rfile.read(length) or b"null")
        call = Call(request.path.split("?")[0], body, time.monotonic())
        with self._lock:
            self._calls.append(call)
            self._lock.notify_all()
        handler = self._handlers.get(call.path)
        answer = (404, {"error": f"no handler for {call.path}"}) if not handler else handler(call)
        code, content = answer if isinstance(answer, tuple) else (200, answer)
        data = json.dumps(content).encode()
        request.send_response(code)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    def __enter__(self: R) -> R:
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._server.shutdown()
        self._server.hang_up()
        self._server.server_close()
        self._thread.join(timeout=10.0)


class _Server(ThreadingHTTPServer):
    """Knows its connections: Kubernetes keeps them, and asks on over one that it still has."""

    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._connections: list[socket.socket] = []

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self._connections.append(connection)
        return connection, address

    def hang_up(self) -> None:
        """End all connections, as the end of a process does."""
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
