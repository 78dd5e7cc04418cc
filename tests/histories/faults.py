"""Faults between a client and the API server, and the clock that they use.

The history chooses the fate of each request. Other things may happen while a request is in
progress: ``meanwhile`` is called before and after the server has executed it, and may do anything,
other requests included. So one thread shows the orders of events that several threads would.

A fault is counted when it reaches the client, and not when it is chosen, because the request may
never be sent.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping
from enum import Enum, auto
from itertools import count
from typing import Any

import msgspec

from hami_py.kube.errors import Unavailable
from hami_py.kube.server import Status, failure
from histories.fake_api import Event, FakeApi
from histories.status_errors import Refused

Do = Callable[[], tuple[int, bytes]]

Happened = Callable[[str], object]
"""Told of each fault, by its name."""

_OF_OBJECTS = tuple(b'{"type":"%s"' % kind for kind in (b"ADDED", b"MODIFIED", b"DELETED"))

LATE_S = 0.9
"""How much later than its client gave up a write may still take effect. The API server ends a
request whose client has gone; what it has handed to etcd by then is done when etcd has done it. A
program that was killed, or a kube-scheduler that tries again, comes back after a second or more."""


class Clock:
    """Time that passes when it is told to, and what is due then."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()

    def ns(self) -> int:
        return int(self.now * 1e9)

    def at(self, when: float, what: Callable[[], object]) -> None:
        heapq.heappush(self._due, (when, next(self._order), what))

    def next_due(self) -> float | None:
        return self._due[0][0] if self._due else None

    def advance(self, to: float) -> None:
        while self._due and self._due[0][0] <= to:
            when, _, what = heapq.heappop(self._due)
            self.now = max(self.now, when)
            what()
        self.now = max(self.now, to)


class Fate(Enum):
    """The fate of a request."""

    DONE = auto()
    BUSY = auto()
    """429, 500 or 503: not done."""
    LOST = auto()
    """No answer in time, and not done."""
    UNANSWERED = auto()
    """No answer in time, but done."""
    LATE = auto()
    """No answer in time, and done a little later."""


class Killed(BaseException):
    """The program that made the request has ended."""


class Client:
    """The interface of ``hami_py.kube.ApiServer``, on a fake server.

    Args:
        api: the server.
        clock: the clock for deadlines.
        fate: chooses the fate of a request, by its method.
        meanwhile: called while a request is in progress.
        pick: returns a random number in [0, 1), for delays.
        send: called with each request when it is sent; its result replaces the request.
        happened: called with each fault.
    """

    def __init__(
        self,
        api: FakeApi,
        clock: Clock,
        *,
        fate: Callable[[str], Fate] = lambda _: Fate.DONE,
        meanwhile: Callable[[], object] = lambda: None,
        pick: Callable[[], float] = lambda: 0.5,
        send: Callable[[Do], Do] = lambda do: do,
        happened: Happened = lambda _: None,
    ) -> None:
        self.happened = happened
        self._api = api
        self._clock = clock
        self._fate = fate
        self._meanwhile = meanwhile
        self._pick = pick
        self._send = send
        self._under_way: list[tuple[float, Do]] = []
        self._killed = False
        self._killed_at = math.inf
        self._newest = 0
        """The version of the last event of which any watch of the client has told."""

    def get(self, path: str, query: Mapping[str, str] | None = None, *, deadline_s: float) -> bytes:
        return self._ask("GET", path, query, None, deadline_s)

    def post(self, path: str, body: object, *, deadline_s: float) -> bytes:
        return self._ask("POST", path, None, body, deadline_s)

    def put(self, path: str, body: object, *, deadline_s: float) -> bytes:
        return self._ask("PUT", path, None, body, deadline_s)

    def patch(self, path: str, body: object, kind: str, *, deadline_s: float) -> bytes:
        return self._ask("PATCH", path, None, body, deadline_s)

    def delete(self, path: str, *, deadline_s: float) -> bytes:
        return self._ask("DELETE", path, None, None, deadline_s)

    def stream(self, path: str, query: Mapping[str, str], *, silence_s: float) -> FakeStream:
        if self._fate("WATCH") is Fate.BUSY:
            raise self._busy(f"GET {path}")
        kind = path.rpartition("/")[2]
        return FakeStream(self._api, kind, int(query["resourceVersion"]), query, client=self)

    def told(self, event: Event) -> None:
        """A watch is about to tell of it. Each tells in order; three beside each other do not."""
        if event.version < self._newest:
            self.happened("event out of order")
        self._newest = max(self._newest, event.version)
        if self._api.is_past(event):
            self.happened("event out of date")

    def kill(self) -> None:
        """The program is ended. Of what it has sent some is done all the same."""
        self._killed = True
        self._killed_at = self._clock.now
        if self._under_way:
            self.happened("killed while asking")
        for give_up, do in self._under_way:
            late = min(self._clock.now, give_up) + LATE_S * self._pick()
            if self._pick() < 0.5 and late >= self._clock.now:
                self._clock.at(late, self._late(do, "write of one that was killed", 0.0))

    def _ask(
        self, method: str, path: str, query: Mapping[str, str] | None, body: Any, deadline_s: float
    ) -> bytes:
        what, give_up = f"{method} {path}", self._clock.now + deadline_s

        do = self._send(lambda: self._api.request(method, path, query, body))
        fate = self._fate(method)
        if fate is Fate.BUSY:
            raise self._busy(what)
        self._check_alive()
        if fate is Fate.LATE:
            # Others may begin before it is done, so it is due now, and not when it is given up.
            late = self._late(do, "write late", give_up)
            self._clock.at(give_up + LATE_S * self._pick(), late)
        self._under_way.append((give_up, do))
        try:
            self._meanwhile()
        finally:
            self._under_way.pop()
        self._check_alive()
        if fate in (Fate.LOST, Fate.LATE) or self._clock.now > give_up:
            raise self._timeout(what, give_up, "read lost" if method == "GET" else "write lost")
        code, answer = do()
        self._meanwhile()
        self._check_alive()
        if fate is Fate.UNANSWERED or self._clock.now > give_up:
            wrote = "write unanswered" if code < 300 else "write lost"
            raise self._timeout(what, give_up, "read lost" if method == "GET" else wrote)
        if code in (409, 410):
            self.happened("conflict" if code == 409 else "410 to a list")
        if code >= 300:
            raise failure(what, code, msgspec.json.decode(answer, type=Status))
        return answer

    def _late(self, do: Do, fault: str, give_up: float) -> Callable[[], None]:
        """It is done, unless the program ended before that time: that has its own."""

        def done() -> None:
            if self._killed_at >= give_up and do()[0] < 300:
                self.happened(fault)

        return done

    def _check_alive(self) -> None:
        if self._killed:
            raise Killed

    def _busy(self, what: str) -> Exception:
        code = (429, 500, 503)[int(3 * self._pick())]
        self.happened("busy")
        return failure(what, code, Status(message="the server is busy", code=code))

    def _timeout(self, what: str, give_up: float, fault: str) -> Exception:
        self._clock.advance(give_up)
        self._check_alive()
        self.happened(fault)
        return Unavailable(what, "no answer from the API server (timed out)", "try again later")


class FakeStream:
    """A watch: the available lines, for a reader that polls.

    Attributes:
        at: the last version that was delivered.
        over: whether it has ended.
    """

    def __init__(
        self, api: FakeApi, kind: str, version: int, query: Mapping[str, str], *, client: Client
    ) -> None:
        self.at = version
        self.over = False
        self._api = api
        self._client = client
        self._kind = kind
        self._selector = query.get("labelSelector")

    def ready(self, most: int | None = None, *, bookmark: bool = False) -> list[bytes]:
        """The next lines, so many at most; with a bookmark if there are none."""
        if self.over:
            self._client.happened("watch ended")
            return []
        try:
            events = self._api.since(self.at)
        except Refused as error:
            self.over = True
            self._client.happened("410 to a watch")
            return [msgspec.json.encode({"type": "ERROR", "object": error.body})]
        lines: list[bytes] = []
        for event in events:
            if most is not None and len(lines) >= most:
                return lines
            self.at = event.version
            line = event.told(self._selector) if event.kind == self._kind else None
            if line is not None:
                self._client.told(event)
                if line is not event.line:
                    self._client.happened("event changed by a selector")
                lines.append(line)
        if bookmark and not lines:
            lines.append(self._api.bookmark(self._kind))
        return lines

    def repeat(self, lines: list[bytes]) -> list[bytes]:
        """The same, the first of them twice."""
        if lines[0].startswith(_OF_OBJECTS):
            self._client.happened("event twice")
        return [lines[0], *lines]

    def end(self) -> None:
        """The server or the network ends it."""
        self.over = True

    def stop(self) -> None:
        self.over = True

    def __iter__(self) -> Iterator[bytes]:
        yield from self.ready()
