"""A copy of a list on the API server that follows it: list once, then watch, list again when lost.

The API server keeps old versions for minutes only, so a watch that was away for longer is told
"expired" (410) and has to list again; what was deleted meanwhile is then known only by its absence.
So whoever keeps the copy is handed whole lists and single changes, and needs no other state.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import msgspec

from hami_py.kube.errors import Expired, KubeError, Rejected
from hami_py.kube.followed import Followed, Undecoded
from hami_py.kube.lists import PAGE, decoded, decoded_object, pages
from hami_py.kube.server import Status, Stream, failure

__all__ = ["Follower"]

_log = logging.getLogger(__name__)

_LIST_S = 60.0
"""How long one page may take."""

_WATCH_S = 290
"""A watch is renewed after this long, so that a server which forgot us is noticed."""

_SILENCE_S = 330.0
"""Longer than a watch lives: bookmarks come about every minute, but are not promised."""

_RETRY_S = (0.2, 15.0)
"""The first pause after a failure, doubled each time, and the longest."""

_SHORT_S = 1.0
"""A watch that ends sooner, and has told of nothing, is no sign that the server is well."""


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Versioned(msgspec.Struct):
    class Meta(msgspec.Struct, rename="camel"):
        resource_version: str = ""

    metadata: Meta


T = TypeVar("T")


class Follower(Generic[T]):
    """What a reflector does, one step at a time, in nobody's thread.

    ``pages``, then ``watch`` and ``take`` for each line of the stream. ``ended`` or ``failed`` is
    told how that came to an end, and says how long to wait until all begins anew. With a
    ``version`` there is no need to list: the watch goes on from there.

    One strange object must not hide all others: it is logged, counted and handed on as such.

    Attributes:
        version: of the list and the events handed on so far; ``None``: it has to be listed.
        lists: whole lists handed on so far.
        undecoded: objects so far that could not be decoded.
        heard_at: when the API server was last heard of, by the clock.
    """

    def __init__(
        self,
        followed: Followed[T],
        *,
        page: int = PAGE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.version: str | None = None
        self.lists = 0
        self.undecoded = 0
        self.heard_at: float | None = None
        self._followed = followed
        self._path = followed.path
        self._sink = followed.sink
        self._page = page
        self._decoder = msgspec.json.Decoder(followed.kind, strict=True)
        self._clock = clock
        self._pause_s = _RETRY_S[0]
        self._opened_at = 0.0
        self._has_told = False

    def pages(self) -> Iterator[None]:
        """Lists, page by page; behind the last one the whole is handed on."""
        objects: list[T] = []
        undecoded: list[Undecoded] = []
        version = ""
        followed = self._followed
        asked = (followed.server, self._path, followed.query)
        for page in pages(*asked, lambda: _LIST_S, self._page):
            self.heard_at = self._clock()
            version = version or page.metadata.resource_version
            for raw in page.items:
                item = self._decoded(raw)
                if isinstance(item, Undecoded):
                    undecoded.append(item)
                elif item is not None:
                    objects.append(item)
            yield
        self._sink.replace(objects, undecoded)
        self.version = version
        self.lists += 1

    def watch(self) -> Stream:
        """What has changed since ``version``, and goes on changing."""
        query = {
            **self._followed.query,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self.version or "",
            "timeoutSeconds": str(_WATCH_S),
        }
        self._opened_at = self._clock()
        self._has_told = False
        return self._followed.server.stream(self._path, query, silence_s=_SILENCE_S)

    def take(self, line: bytes) -> None:
        """Hands one event on.

        Raises:
            KubeError: the event says that the watch cannot go on, or is none.
        """
        event = decoded(line, _Event)
        if event.type == "ERROR":
            status = decoded(event.object, Status)
            raise failure(f"watch {self._path}", status.code, status)
        self.heard_at = self._clock()
        self._has_told = True
        seen = decoded(event.object, _Versioned).metadata.resource_version
        if event.type != "BOOKMARK":
            self._hand_on(event)
        self.version = seen or self.version

    def ended(self) -> float:
        """The stream has ended by itself: the server is well, or ends all at once, as when it goes.

        Returns:
            Seconds to wait before the next attempt.
        """
        if not self._has_told and self._clock() - self._opened_at < _SHORT_S:
            return self._pause()
        self._pause_s = _RETRY_S[0]
        return 0.0

    def failed(self, error: Exception) -> float:
        """Something was raised.

        Returns:
            Seconds to wait before the next attempt.
        """
        if isinstance(error, (Expired, Rejected)):
            _log.info("%s: listed again: %s", self._path, error.why)
            self.version = None
        elif isinstance(error, KubeError):
            _log.warning("%s", error)
            # What was missed while nobody answered is told by the version, if it is still kept.
        else:
            # A fault of the sink's: what it has now is unknown, so it gets a whole list.
            _log.error("%s: listed again", self._path, exc_info=error)
            self.version = None
        return self._pause()

    def _pause(self) -> float:
        pause = self._pause_s
        self._pause_s = min(2 * pause, _RETRY_S[1])
        # Many replicas that lost the same server shall not come back in step.
        return pause * random.uniform(0.5, 1.0)  # noqa: S311

    def _hand_on(self, event: _Event) -> None:
        item = self._decoded(event.object)
        if item is None:
            return
        if event.type == "DELETED":
            self._sink.gone(item)
        elif isinstance(item, Undecoded):
            self._sink.undecoded(item)
        else:
            self._sink.changed(item)

    def _decoded(self, raw: msgspec.Raw) -> T | Undecoded | None:
        """``None``: nobody can say which object it is."""
        item = decoded_object(self._decoder, self._path, raw)
        if item is None:
            self.undecoded += 1
        elif isinstance(item, Undecoded):
            self.undecoded += 1
            _log.warning("%s: %s cannot be decoded: %s", self._path, item.name, item.why)
        return item
