"""Keeps a copy of a list on the API server: list once, then watch, and list again when needed.

The API server keeps old versions only for minutes. A watch that was disconnected for longer gets
"expired" (410) and must list again, and objects deleted meanwhile are known only by their absence.
So the receiver gets whole lists and single changes, and needs no other state.
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
from hami_py.model.pods.decoding import prepare

_log = logging.getLogger(__name__)

_LIST_S = 60.0
"""How long one page may take."""

_WATCH_S = 290
"""A watch is renewed after this time, so that a server that has lost it is noticed."""

_SILENCE_S = 330.0
"""Longer than a watch lasts: bookmarks arrive about every minute, but are not guaranteed."""

_RETRY_S = (0.2, 15.0)
"""The first pause after a failure, which doubles each time, and the longest pause."""

_SHORT_S = 1.0
"""If a watch ends sooner and has reported nothing, the server may be failing."""


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Versioned(msgspec.Struct):
    class Meta(msgspec.Struct, rename="camel"):
        resource_version: str = ""

    metadata: Meta


prepare(_Event, _Versioned)


T = TypeVar("T")


class Follower(Generic[T]):
    """The steps of a reflector, without a thread.

    The order is: ``pages``, then ``watch`` and ``take`` for each line of the stream, then ``ended``
    or ``failed``, which return the pause before the next attempt. With a ``version`` the list can
    be skipped: the watch continues from there.

    One object that cannot be decoded must not hide all others: it is logged, counted, and passed on
    as ``Undecoded``.

    Attributes:
        version: the version of the list and the events passed on so far; ``None``: list first.
        heard_at: the clock's time when the API server last sent something.
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
        """Lists page by page, and passes the whole list on after the last page."""
        objects: list[T] = []
        undecoded: list[Undecoded] = []
        version = ""
        server, query = self._followed.server, self._followed.query
        for page in pages(server, self._path, query, lambda: _LIST_S, self._page):
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
        """The stream of changes since ``version``."""
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
        """Passes one event on.

        Raises:
            KubeError: the event ends the watch, or is invalid.
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
        """Records that the stream has ended without an error.

        Either the watch was due for renewal, or the server is shutting down and ends all streams.

        Returns:
            The seconds to wait before the next attempt.
        """
        if not self._has_told and self._clock() - self._opened_at < _SHORT_S:
            return self._pause()
        self._pause_s = _RETRY_S[0]
        return 0.0

    def failed(self, error: Exception) -> float:
        """Records an error.

        Returns:
            The seconds to wait before the next attempt.
        """
        if isinstance(error, (Expired, Rejected)):
            _log.info("%s: listed again: %s", self._path, error.why)
            self.version = None
        elif isinstance(error, KubeError):
            _log.warning("%s", error)
            # A new watch from this version reports what was missed, if the version is still kept.
        else:
            # The receiver failed, so its state is unknown, and it gets a whole list.
            _log.error("%s: listed again", self._path, exc_info=error)
            self.version = None
        return self._pause()

    def _pause(self) -> float:
        pause = self._pause_s
        self._pause_s = min(2 * pause, _RETRY_S[1])
        # Replicas that lost the same server must not all return at the same moment.
        return pause * random.uniform(0.5, 1.0)  # noqa: S311

    def _hand_on(self, event: _Event) -> None:
        item = self._decoded(event.object)
        if item is None:
            return
        if event.type == "DELETED":
            self._sink.deleted(item)
        elif isinstance(item, Undecoded):
            self._sink.undecoded(item)
        else:
            self._sink.changed(item)

    def _decoded(self, raw: msgspec.Raw) -> T | Undecoded | None:
        """The object; ``None``: it has no name."""
        item = decoded_object(self._decoder, self._path, raw)
        if item is None:
            self.undecoded += 1
        elif isinstance(item, Undecoded):
            self.undecoded += 1
            _log.warning("%s: %s cannot be decoded: %s", self._path, item.name, item.why)
        return item
