"""The agent's socket for the hook of containers that start (``native/hook``, stage createRuntime).

Only root may use it. A connection is for one request: a line of JSON with the container's slot and
the PID of its first process. The answer is a line with the error, or null.
"""

import logging
import socketserver
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from hami_py.errors import HamiError, StateError

_log = logging.getLogger(__name__)

_LARGEST = 4096
"""Bytes of a request."""

_PATIENCE_S = 2.0
"""How long a connection may wait with its request."""


class _Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    slot: str
    pid: int


class _Handler(socketserver.StreamRequestHandler):
    timeout = _PATIENCE_S

    def handle(self) -> None:
        try:
            request = msgspec.json.decode(self.rfile.readline(_LARGEST), type=_Request)
            self.server.start(request.slot, request.pid)  # type: ignore[attr-defined]
            error = None
        except (HamiError, msgspec.MsgspecError, OSError) as failed:
            error = str(failed)
        self.wfile.write(msgspec.json.encode({"error": error}) + b"\n")


class HookServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Listens until it is stopped.

    Args:
        path: where the socket is; one of an earlier agent is replaced.
        start: is called with the slot and the first process of a container, in a thread of its own.
            HamiError: the driver does not limit it.

    Raises:
        StateError: there can be no socket at the path.
    """

    daemon_threads = True

    def __init__(self, path: Path, start: Callable[[str, int], None]) -> None:
        self.start, self._path = start, path
        try:
            path.unlink(missing_ok=True)
            super().__init__(str(path), _Handler)
            path.chmod(0o600)
        except OSError as error:
            fix = "check its directory"
            raise StateError(f"socket {path}", error.strerror or str(error), fix) from error
        self.thread = threading.Thread(target=self.serve_forever, name="hook", daemon=True)

    def stop(self) -> None:
        """End, and remove the socket."""
        if self.thread.is_alive():
            self.shutdown()
        self.server_close()
        self._path.unlink(missing_ok=True)

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that ends early is no fault of ours."""
        _log.debug("a hook's connection failed", exc_info=True)
