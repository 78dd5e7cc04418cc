"""Request bodies that are being read: a bound for all of them together.

Each body has its own bound, but a client that opens a thousand connections and sends slowly holds a
thousand bodies in memory. If all bodies together exceed the budget, the largest one is dropped,
whichever client sends it. So a body smaller than the budget divided by the number of connections is
never dropped: ordinary reviews are answered, whatever else arrives.
"""

from __future__ import annotations


class NoRoom(Exception):
    """This body was dropped because there was no room."""


class Bodies:
    """The bodies that a server is reading. Only the event loop's thread may use it."""

    def __init__(self, most_bytes: int) -> None:
        self.dropped = 0
        self._most_bytes = most_bytes
        self._held = 0
        self._reading: set[Body] = set()

    def new(self) -> Body:
        """Begins a body; its ``close`` must follow."""
        body = Body(self)
        self._reading.add(body)
        return body

    def _add(self, body: Body, chunk: bytes) -> None:
        # Most bodies arrive in one piece, which is not copied.
        if not body.data:
            body.data = chunk
        elif isinstance(body.data, bytearray):
            body.data += chunk
        else:
            body.data = bytearray(body.data) + chunk
        self._held += len(chunk)
        while self._held > self._most_bytes:
            largest = max(self._reading, key=lambda each: len(each.data))
            largest.is_dropped = True
            self._empty(largest)
            self.dropped += 1

    def _close(self, body: Body) -> None:
        self._empty(body)
        self._reading.discard(body)

    def _empty(self, body: Body) -> None:
        self._held -= len(body.data)
        body.data = b""


class Body:
    """One body that is being read.

    Attributes:
        is_dropped: whether its bytes were dropped, so that it must not be read further.
    """

    def __init__(self, bodies: Bodies) -> None:
        self.data: bytes | bytearray = b""
        self.is_dropped = False
        self._bodies = bodies

    def add(self, chunk: bytes) -> None:
        """Adds bytes.

        Raises:
            NoRoom: this body was dropped, now or earlier, because it was the largest.
        """
        if not self.is_dropped:
            self._bodies._add(self, chunk)
        if self.is_dropped:
            raise NoRoom

    def close(self) -> None:
        """Frees its bytes."""
        self._bodies._close(self)
