"""Follows a cluster for one user, with the user's own token.

Objects are listed once and then followed, and a refresh asks only the node agents. The API server
checks a right when a watch begins, so a session begins again every few minutes: then it sees what
was granted, and no longer sees what was taken away. Whether the token is still valid is asked more
often.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from hami_py.errors import HamiError
from hami_py.kube import ApiServer
from hami_py.kube.errors import Forbidden, KubeError
from hami_py.model.pods import PodSettings
from hami_py.model.pods.decoding import prepare
from hami_py.monitor import History
from hami_py.overview import Reader, Scope
from hami_py.view.events import Events
from hami_py.view.picture import Shown, picture

_log = logging.getLogger(__name__)

_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_REVIEW_S = 10.0

_HISTORY_S = 5.0
"""How old a history may be: a node agent adds to it every 20 seconds."""

_HISTORIES = 8
"""How many nodes' histories a session keeps."""

_EXPIRED = "The API server does not accept this token, or not any more; sign in with another one."

_SERVICE_ACCOUNT = "system:serviceaccount:"


@dataclass(frozen=True)
class SessionSettings:
    """How sessions run.

    Attributes:
        system: the namespace of the node agents.
        period_s: the pause between two readings. It is at least half of the time that the last one
            took, so that the agents of a large cluster are not asked all the time.
        asked_s: it reads while a page has asked within this time.
        idle_s: it ends when no page has asked for so long.
        token_s: how often the token is checked.
        round_s: how often it begins again.
    """

    title: str = ""
    system: str = "hami-system"
    pods: PodSettings = field(default_factory=PodSettings)
    period_s: float = 0.3
    asked_s: float = 10.0
    idle_s: float = 60.0
    token_s: float = 60.0
    round_s: float = 300.0
    retry_s: float = 3.0


@dataclass(frozen=True)
class Refused:
    """Why a session shows nothing: the HTTP status, 401 or 403, and the reason."""

    status: int
    why: str


class _User(msgspec.Struct, frozen=True):
    username: str = ""


class _UserStatus(msgspec.Struct, frozen=True, rename="camel"):
    user_info: _User = _User()


class _Review(msgspec.Struct, frozen=True):
    """``SelfSubjectReview``."""

    status: _UserStatus = _UserStatus()


prepare(_Review)


class Session:
    """One user's view of the cluster, read in a thread of its own.

    Args:
        server: the API server, with the user's token. The session closes it.
        namespace: the namespace that is shown if the user may not see all; empty: the one of the
            user's service account.
        known: called once the API server has accepted or refused the token.

    Attributes:
        user: the user's name; empty: not known yet.
        shown: what the page shows; ``None``: nothing was read yet.
        refused: why nothing is shown; ``None``: it was not refused.
        problem: why the last reading failed; empty: it did not.
    """

    def __init__(
        self,
        server: ApiServer,
        namespace: str,
        settings: SessionSettings,
        known: Callable[[], None],
    ) -> None:
        self.user = ""
        self.shown: Shown | None = None
        self.refused: Refused | None = None
        self.problem = ""
        self.asked_at = time.monotonic()
        self._server, self._namespace, self._settings = server, namespace, settings
        self._known = known
        self._checked_at = -math.inf
        self._reader: Reader | None = None
        self._asking = threading.Lock()
        self._histories: dict[str, tuple[float, History | None]] = {}
        self._asked, self._stopping = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="session", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread soon."""
        self._stopping.set()
        self._asked.set()

    def join(self, deadline_s: float) -> None:
        """Waits until the thread has ended."""
        self._thread.join(deadline_s)

    @property
    def is_running(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def ask(self) -> None:
        """A page asks: the session goes on."""
        self.asked_at = time.monotonic()
        self._asked.set()

    def history(self, node: str) -> History | None:
        """The last hour of a node, at most some seconds old; ``None``: unknown, or not yet.

        It asks for one node at a time, so that a user holds one of the listener's threads.
        """
        reader, shown, now = self._reader, self.shown, time.monotonic()
        if reader is None or shown is None or node not in shown.containers:
            return None
        if self._asking.acquire(blocking=False):
            try:
                at_s, _ = self._histories.get(node, (-math.inf, None))
                if now - at_s > _HISTORY_S:
                    self._histories.pop(node, None)
                    self._histories[node] = now, reader.history(node)
                    if len(self._histories) > _HISTORIES:
                        del self._histories[next(iter(self._histories))]
            finally:
                self._asking.release()
        return self._histories.get(node, (0.0, None))[1]

    def _run(self) -> None:
        try:
            while not self._is_over():
                try:
                    self._round()
                except Forbidden as error:
                    is_known, self.shown = error.status != 401, None
                    self.refused = Refused(403, error.why) if is_known else Refused(401, _EXPIRED)
                    return
                except HamiError as error:
                    _log.warning("a session begins again: %s", error)
                    self.problem = str(error)
                    if time.monotonic() - self._checked_at > 2 * self._settings.token_s:
                        # The token may have been revoked meanwhile.
                        self.shown = None
                    self._stopping.wait(self._settings.retry_s)
        except Exception:
            _log.exception("a session has ended")
        finally:
            self._known()
            self._server.close()

    def _round(self) -> None:
        """Lists and follows, until it is time to begin again."""
        settings = self._settings
        self._check_token()
        self._known()
        scope = Scope(own=self._namespace or _namespace_of(self.user), system=settings.system)
        reader = Reader(self._server, scope, settings.pods)
        events = Events(self._server, scope.own)
        with reader.following(), events.following():
            self._reader = reader
            began = checked = time.monotonic()
            while not self._is_over():
                now = time.monotonic()
                if now - began > settings.round_s:
                    return
                if now - checked > settings.token_s:
                    self._check_token()
                    checked = now
                self._read(reader, events)
                self._stopping.wait(max(settings.period_s, (time.monotonic() - now) / 2))
                self._wait_for_a_page()

    def _read(self, reader: Reader, events: Events) -> None:
        overview = reader.read()
        pods = {(each.namespace, each.pod) for each in overview.containers}
        pods |= {(each.namespace, each.pod) for each in overview.waiting}
        self.shown = picture(
            overview,
            time.monotonic(),
            title=self._settings.title,
            user=self.user,
            events=events.latest(pods),
            notes=[events.note] if events.note else [],
        )
        self.problem = ""

    def _check_token(self) -> None:
        """Asks who the user is.

        Raises:
            Forbidden: the token is not valid.
            KubeError: the API server does not answer.
        """
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = self._server.post(_REVIEWS, body, deadline_s=_REVIEW_S)
        try:
            self.user = msgspec.json.decode(answer, type=_Review).status.user_info.username
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise KubeError(_REVIEWS, str(error), "check the API server") from error
        self._checked_at = time.monotonic()

    def _wait_for_a_page(self) -> None:
        while not self._is_over():
            if time.monotonic() - self.asked_at < self._settings.asked_s:
                return
            self._asked.clear()
            self._asked.wait(1.0)

    def _is_over(self) -> bool:
        idle_s = time.monotonic() - self.asked_at
        return self._stopping.is_set() or idle_s > self._settings.idle_s


def _namespace_of(user: str) -> str:
    """A service account's namespace; other users have none."""
    namespace = user.removeprefix(_SERVICE_ACCOUNT).partition(":")[0]
    return namespace if user.startswith(_SERVICE_ACCOUNT) else "default"
