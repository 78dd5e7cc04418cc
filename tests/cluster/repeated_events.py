"""An API server whose watch of pods repeats each event, and delays events if a test says so."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping

from hami_py.cluster.state import PODS
from hami_py.kube import ApiServer
from hami_py.kube.server import Stream


class RepeatedEvents(ApiServer):
    """The same server, with repeated and delayed events.

    Attributes:
        repeated: events that were sent twice, by their type.
        held: events that were delayed.
        let_go: delayed events that have been sent since.
        goes: while it is not set, every event waits.
    """

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server._client)
        self.repeated: Counter[str] = Counter()
        self.held = self.let_go = 0
        self.goes = threading.Event()
        self.goes.set()

    def stream(self, path: str, query: Mapping[str, str], *, silence_s: float) -> Stream:
        stream = super().stream(path, query, silence_s=silence_s)
        return _Twice(self, stream) if path == PODS else stream


class _Twice(Stream):
    def __init__(self, server: RepeatedEvents, stream: Stream) -> None:
        self._server, self._stream = server, stream
        self._is_stopped = False

    def __iter__(self) -> Iterator[bytes]:
        for line in self._stream:
            is_late = not self._server.goes.is_set()
            self._server.held += is_late
            while not (self._server.goes.wait(0.1) or self._is_stopped):
                pass
            self._server.let_go += is_late
            yield line
            yield line
            self._server.repeated[json.loads(line)["type"]] += 1

    def stop(self) -> None:
        self._is_stopped = True
        self._stream.stop()
