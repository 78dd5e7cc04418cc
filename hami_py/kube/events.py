"""Kubernetes events: what happened to an object, for people who look at it.

An event is one write, and the API server keeps it for an hour. ``EventWriter`` writes equal ones
once, and never lets its callers wait. Events of one topic are equal, although their messages may
have other numbers.
"""

from __future__ import annotations

import logging
import queue
import secrets
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Literal

from hami_py.kube.errors import KubeError
from hami_py.kube.server import ApiServer, path_of

_log = logging.getLogger(__name__)

_AGAIN_S = 600.0
"""After this time an equal event is written again."""

_MOST = 1000
"""Events that wait, for example while the API server is away; further ones are dropped."""

_MOST_CHARACTERS = 1024
"""The longest message that Kubernetes accepts."""

_DEADLINE_S = 10.0


@dataclass(frozen=True)
class Reference:
    """The object that an event is about. A node has no namespace."""

    kind: Literal["Pod", "Node"]
    name: str
    uid: str
    namespace: str = ""


@dataclass(frozen=True)
class Event:
    """What happened.

    Attributes:
        reason: one word in CamelCase, for programs.
        is_warning: a person should look at it.
        repeats: it is written also if an equal one was written shortly before.
        topic: what the message is about, if its numbers change; by default, the message.
    """

    about: Reference
    reason: str
    message: str
    is_warning: bool = True
    repeats: bool = False
    topic: str = ""

    @property
    def key(self) -> tuple[Reference, str, str]:
        """Equal for equal events."""
        return self.about, self.reason, self.topic or self.message


class EventWriter:
    """Writes events in a thread of its own."""

    def __init__(self, server: ApiServer, component: str, host: str) -> None:
        self._server, self._component, self._host = server, component, host
        self._queue: queue.Queue[Event | None] = queue.Queue(_MOST)
        self._written: dict[tuple[Reference, str, str], float] = {}
        self.thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self.thread.start()

    def stop(self) -> None:
        """End the thread; events that wait are dropped."""
        while not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put(None)
        self.thread.join(_DEADLINE_S)

    def write(self, event: Event) -> None:
        """Write an event soon, unless an equal one was written in the last ten minutes."""
        now = time.monotonic()
        self._written = {key: at for key, at in list(self._written.items()) if now - at < _AGAIN_S}
        if event.key in self._written and not event.repeats:
            return
        self._written[event.key] = now
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            _log.warning("too many events; dropped: %s", event.message)

    def _run(self) -> None:
        while (event := self._queue.get()) is not None:
            try:
                self._post(event)
            except KubeError as error:
                _log.warning("event %s (%s): %s", event.reason, event.message, error)

    def _post(self, event: Event) -> None:
        about = event.about
        # Kubernetes writes the events of nodes into this namespace.
        namespace = about.namespace or "default"
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{about.name}.{secrets.token_hex(8)}",
                "namespace": namespace,
            },
            "involvedObject": {
                "apiVersion": "v1",
                "kind": about.kind,
                "name": about.name,
                "uid": about.uid,
                **({"namespace": about.namespace} if about.namespace else {}),
            },
            "reason": event.reason,
            "message": event.message[:_MOST_CHARACTERS],
            "type": "Warning" if event.is_warning else "Normal",
            "source": {"component": self._component, "host": self._host},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self._server.post(path_of(namespace, "events"), body, deadline_s=_DEADLINE_S)
