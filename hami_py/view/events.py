"""The events of a cluster that are about cards: those of pods that request cards, and of hami-py.

A cluster has thousands of events an hour. So the API server selects warnings and what the node
agents wrote, and the latest of them are kept.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator, Sequence

import msgspec

from hami_py.kube import ApiServer, Followed, Reflector, Undecoded, list_version, path_of
from hami_py.kube.errors import Forbidden
from hami_py.kube.followed import Naming
from hami_py.model.pods.decoding import ApiObject, prepare
from hami_py.view.picture import EventPicture

MOST = 2000
"""Events that are kept."""

SHOWN = 100
"""Events that the page shows."""

_OURS = "hami"

# The table of containers shows their levels, and each container has such an event.
_OF_AGENTS = {"fieldSelector": "source=hami-node,reason!=LimitsEnforced"}
_WARNINGS = {"fieldSelector": "type=Warning"}

_LIST_S = 30.0
_CHARACTERS = 1024


class Involved(ApiObject, frozen=True):
    """``ObjectReference``."""

    kind: str = ""
    namespace: str | None = None
    name: str = ""


class Source(ApiObject, frozen=True):
    """``EventSource``."""

    component: str | None = None


class Repeats(ApiObject, frozen=True):
    """``EventSeries``."""

    count: int = 0
    last_observed_time: str | None = None


class SeenEvent(ApiObject, frozen=True):
    """``Event``."""

    metadata: Naming = Naming()
    involved_object: Involved = Involved()
    source: Source | None = None
    series: Repeats | None = None
    reporting_component: str | None = None
    reason: str | None = None
    message: str | None = None
    type: str | None = None
    count: int | None = None
    event_time: str | None = None
    last_timestamp: str | None = None

    @property
    def at(self) -> str:
        """When it happened last."""
        of_series = self.series.last_observed_time if self.series is not None else None
        return of_series or self.last_timestamp or self.event_time or ""

    @property
    def is_ours(self) -> bool:
        """Whether a part of hami-py wrote it."""
        component = self.reporting_component or (self.source and self.source.component) or ""
        return component.startswith(_OURS)

    def cut(self) -> SeenEvent:
        """The event with the shown part of its message: a message may be long."""
        if self.message is None or len(self.message) <= _CHARACTERS:
            return self
        return msgspec.structs.replace(self, message=self.message[:_CHARACTERS])

    def shown(self) -> EventPicture:
        """The event as the page shows it."""
        about = self.involved_object
        return EventPicture(
            at=self.at,
            is_warning=self.type == "Warning",
            kind=about.kind,
            namespace=about.namespace or "",
            name=about.name,
            reason=self.reason or "",
            message=self.message or "",
            count=(self.series.count if self.series is not None else self.count) or 1,
        )


prepare(SeenEvent)


class Events:
    """Follows the events that a user may see.

    Args:
        own: the user's namespace, which is followed if not all namespaces may be.
    """

    def __init__(self, server: ApiServer, own: str) -> None:
        self._server, self._own = server, own
        self._warnings, self._ours = _Latest(), _Latest()
        self.note = ""

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """Follow them; ``note`` says why not, if the user may not."""
        with contextlib.ExitStack() as ends:
            if (listed := self._list()) is not None:
                path, version = listed
                for query, store, at in (
                    (_OF_AGENTS, self._ours, version),
                    (_WARNINGS, self._warnings, None),
                ):
                    reflector = Reflector(Followed(self._server, path, SeenEvent, store, query), at)
                    reflector.start()
                    ends.callback(reflector.stop)
            yield

    def latest(self, pods: Collection[tuple[str, str]]) -> list[EventPicture]:
        """The latest first: of these pods (namespace and name), and what hami-py wrote."""
        found = {
            (each.metadata.namespace, each.metadata.name): each
            for store in (self._warnings, self._ours)
            for each in store.all()
            if each.is_ours or _pod_of(each) in pods
        }
        latest = sorted(found.values(), key=lambda each: each.at, reverse=True)
        return [each.shown() for each in latest[:SHOWN]]

    def _list(self) -> tuple[str, str] | None:
        """Lists what the agents wrote; the path and version of the list that the user may read."""
        own = path_of(self._own, "events")
        for path in ("/api/v1/events", own):
            try:
                found, undecoded, version = list_version(
                    self._server, path, SeenEvent, query=_OF_AGENTS, deadline_s=_LIST_S
                )
            except Forbidden as error:
                self.note = f"events are not shown: {error.why}"
                continue
            self.note = f"only events of namespace {self._own} are shown" if path == own else ""
            self._ours.replace(found, undecoded)
            return path, version
        return None


def _pod_of(event: SeenEvent) -> tuple[str, str] | None:
    about = event.involved_object
    return (about.namespace or "", about.name) if about.kind == "Pod" else None


class _Latest:
    """A bounded ``Sink``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: dict[tuple[str, str], SeenEvent] = {}

    def all(self) -> list[SeenEvent]:
        with self._lock:
            return list(self._events.values())

    def replace(self, items: list[SeenEvent], undecoded: Sequence[Undecoded] = ()) -> None:
        with self._lock:
            self._events = {}
            for item in sorted(items, key=lambda each: each.at)[-MOST:]:
                self._events[_key(item)] = item.cut()

    def changed(self, item: SeenEvent) -> None:
        with self._lock:
            # The latest one is the last one.
            self._events.pop(_key(item), None)
            self._events[_key(item)] = item.cut()
            if len(self._events) > MOST:
                del self._events[next(iter(self._events))]

    def undecoded(self, item: Undecoded) -> None:
        self.deleted(item)

    def deleted(self, item: SeenEvent | Undecoded) -> None:
        with self._lock:
            self._events.pop(_key(item), None)


def _key(item: SeenEvent | Undecoded) -> tuple[str, str]:
    return item.metadata.namespace or "", item.metadata.name
