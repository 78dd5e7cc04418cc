"""A copy of a list on the API server that follows it: list once, then watch, list again when lost.

The API server keeps old versions for minutes only, so a watch that was away for longer is told
"expired" (410) and has to list again; what was deleted meanwhile is then known only by its absence.
So whoever keeps the copy is handed whole lists and single changes, and needs no other state.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar

import msgspec

from hami_py.kube.errors import Expired, KubeError, Unavailable
from hami_py.kube.server import ApiServer, Status, Stream, failure
from hami_py.model.pods.decoding import Decoder

__all__ = ["Reflector", "Sink", "list_objects"]

_log = logging.getLogger(__name__)

_PAGE = 500
"""Objects per page of a list: what client-go asks for; a page of pods is about 2 MB."""

_LIST_S = 60.0
"""How long one page may take."""

_WATCH_S = 290
"""A watch is renewed after this long, so that a server which forgot us is noticed."""

_SILENCE_S = 330.0
"""Longer than a watch lives: bookmarks come about every minute, but are not promised."""

_RETRY_S = (0.2, 15.0)
"""The first pause after a failure, doubled each time, and the longest."""


class ListMeta(msgspec.Struct, rename="camel"):
    """Where a list ends, and at which version it was read."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct):
    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Versioned(msgspec.Struct):
    class Meta(msgspec.Struct, rename="camel"):
        resource_version: str = ""

    metadata: Meta


T = TypeVar("T")


class Sink(Protocol[T]):
    """Whoever keeps the copy. Called by one thread, the reflector's."""

    def replace(self, objects: list[T]) -> None:
        """These are all there are."""

    def changed(self, item: T) -> None:
        """This one came, or is now so."""

    def gone(self, item: T) -> None:
        """This one is gone; it is given as it was last."""


class Reflector(Generic[T]):
    """Follows one list in a thread of its own.

    An object that cannot be decoded is left out, logged and counted: one strange object must not
    hide all others.

    Attributes:
        listed: set once a whole list has been handed on.
        lists: whole lists handed on so far.
        undecoded: objects left out so far.
    """

    def __init__(
        self,
        server: ApiServer,
        path: str,
        kind: type[T],
        sink: Sink[T],
        *,
        query: dict[str, str] | None = None,
    ) -> None:
        self.listed = threading.Event()
        self.lists = 0
        self.undecoded = 0
        self._server = server
        self._path = path
        self._query = query or {}
        self._decoder = msgspec.json.Decoder(kind, strict=True)
        self._sink = sink
        self._stopping = threading.Event()
        self._stream: Stream | None = None
        self._lock = threading.Lock()
        self._heard_at: float | None = None
        self._thread = threading.Thread(target=self._run, name=f"watch {path}", daemon=True)

    def start(self) -> None:
        """Begins to follow."""
        self._thread.start()

    def stop(self, deadline_s: float = 5.0) -> None:
        """Ends the thread; what was handed on stays."""
        self._stopping.set()
        with self._lock:
            if self._stream is not None:
                self._stream.stop()
        if self._thread.is_alive():
            self._thread.join(deadline_s)

    def silent_s(self) -> float | None:
        """Seconds since the API server was last heard of, ``None`` if it never was."""
        return None if self._heard_at is None else time.monotonic() - self._heard_at

    def _run(self) -> None:
        pause = _RETRY_S[0]
        version = None
        while not self._stopping.is_set():
            try:
                if version is None:
                    version = self._list()
                version = self._watch(version)
                pause = _RETRY_S[0]
                continue
            except Expired as error:
                _log.info("%s: listed again: %s", self._path, error.why)
                version = None
            except KubeError as error:
                if not self._stopping.is_set():
                    _log.warning("%s", error)
                # What was missed while nobody answered is told by the version, if it is still kept.
            except Exception:
                # A fault of the sink's: what it has now is unknown, so it gets a whole list.
                _log.exception("%s: listed again", self._path)
                version = None
            # Many replicas that lost the same server shall not come back in step.
            self._stopping.wait(pause * random.uniform(0.5, 1.0))  # noqa: S311
            pause = min(2 * pause, _RETRY_S[1])

    def _list(self) -> str:
        objects: list[T] = []
        version = ""
        for page in _pages(self._server, self._path, self._query, _LIST_S):
            self._heard_at = time.monotonic()
            version = version or page.metadata.resource_version
            objects.extend(self._decoded(page.items or []))
            if self._stopping.is_set():
                return version
        self._sink.replace(objects)
        self.lists += 1
        self.listed.set()
        return version

    def _watch(self, version: str) -> str:
        query = {
            **self._query,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(_WATCH_S),
        }
        stream = self._server.stream(self._path, query, silence_s=_SILENCE_S)
        with self._lock:
            self._stream = stream
        try:
            if self._stopping.is_set():
                return version
            for event in self._events(stream):
                self._heard_at = time.monotonic()
                seen = _decode(event.object, _Versioned).metadata.resource_version
                if event.type != "BOOKMARK":
                    self._hand_on(event)
                version = seen or version
        finally:
            with self._lock:
                self._stream = None
        return version

    def _events(self, stream: Stream) -> Iterator[_Event]:
        for line in stream:
            event = _decode(line, _Event)
            if event.type == "ERROR":
                status = _decode(event.object, Status)
                raise failure(f"watch {self._path}", status.code, status)
            yield event

    def _hand_on(self, event: _Event) -> None:
        act: Callable[[T], None] = (
            self._sink.gone if event.type == "DELETED" else self._sink.changed
        )
        for item in self._decoded([event.object]):
            act(item)

    def _decoded(self, raws: list[msgspec.Raw]) -> Iterator[T]:
        for raw in raws:
            try:
                yield self._decoder.decode(raw)
            except msgspec.ValidationError as error:
                self.undecoded += 1
                _log.warning("%s: an object is left out: %s", self._path, error)


def list_objects(
    server: ApiServer,
    path: str,
    kind: type[T],
    *,
    query: Mapping[str, str] | None = None,
    deadline_s: float = _LIST_S,
) -> list[T]:
    """All objects of a list, once.

    Raises:
        InvalidValue: one of them is not as its kind says.
        KubeError: see there.
    """
    decode = Decoder(kind, path)
    pages = _pages(server, path, query or {}, deadline_s)
    return [decode(bytes(raw)) for page in pages for raw in page.items or []]


def _pages(
    server: ApiServer, path: str, query: Mapping[str, str], deadline_s: float
) -> Iterator[_Page]:
    rest = ""
    while True:
        asked = {**query, "limit": str(_PAGE), **({"continue": rest} if rest else {})}
        page = _decode(server.get(path, asked, deadline_s=deadline_s), _Page)
        yield page
        rest = page.metadata.continue_
        if not rest:
            return


D = TypeVar("D")


def _decode(data: bytes | msgspec.Raw, kind: type[D]) -> D:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unavailable("the API server's answer", str(error), "try again later") from error
