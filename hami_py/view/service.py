"""The view as a service."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from hami_py.errors import InvalidValue
from hami_py.kube import UserServers, is_token
from hami_py.monitor import NodeFigures
from hami_py.serving import Listen, Server
from hami_py.view.application import NoToken, Viewer, application
from hami_py.view.local import Machine
from hami_py.view.session import SessionSettings
from hami_py.view.sessions import Sessions

_LOOPBACK = ("127.0.0.1", "localhost", "::1")

_CONNECTIONS = 256
"""The most connections at once. Each may hold a picture that its client does not read."""


@dataclass(frozen=True)
class ViewSettings:
    """How the view of a cluster runs.

    Attributes:
        sessions: the most sessions at once, so that memory has a bound.
    """

    listen: Listen = field(
        default_factory=lambda: Listen("127.0.0.1", 9384, connections=_CONNECTIONS)
    )
    sessions: int = 16
    session: SessionSettings = field(default_factory=SessionSettings)


class View:
    """The view of a cluster."""

    def __init__(self, servers: UserServers, settings: ViewSettings) -> None:
        self._sessions = Sessions(servers.of, settings.session, most=settings.sessions)
        self.server = Server(application(self._find), settings.listen)

    def start(self) -> None:
        """Begins to answer."""
        self.server.start()

    def stop(self) -> None:
        """Ends."""
        self.server.stop()
        self._sessions.stop()

    def _find(self, token: str | None, namespace: str) -> Viewer:
        if token is None or not is_token(token):
            raise NoToken
        return self._sessions.of(token, namespace)


class LocalView:
    """The view of this machine, on a loopback address.

    Other users of the machine can reach that address too, so a page needs a token.

    Raises:
        InvalidValue: it is no loopback address.
    """

    def __init__(self, read: Callable[[], NodeFigures], listen: Listen) -> None:
        if listen.host not in _LOOPBACK:
            fix = f"choose one of {', '.join(_LOOPBACK)}: it shows your programs"
            raise InvalidValue("--listen", listen.host, fix)
        self.token = secrets.token_urlsafe(32)
        self._host = listen.host
        self._machine = Machine(read)
        self.server = Server(application(self._find, _LOOPBACK), listen)

    @property
    def address(self) -> str:
        """The address for a browser; a browser does not send the part behind the #."""
        # A browser may try ::1 first, where another user of the machine may listen.
        host = "127.0.0.1" if self._host == "localhost" else self._host
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{self.server.port}/#token={self.token}"

    def start(self) -> None:
        """Begins to answer."""
        self._machine.start()
        self.server.start()

    def stop(self) -> None:
        """Ends."""
        self.server.stop()
        self._machine.stop()

    def _find(self, token: str | None, _: str) -> Viewer:
        if token is None or not hmac.compare_digest(token.encode(), self.token.encode()):
            raise NoToken
        self._machine.ask()
        return self._machine
