"""The bodies that are being read at this moment: together they have a bound.

Each has one of its own, but whoever opens a thousand connections and sends slowly holds a thousand
of them. Where all together are more than the budget the largest is given up, whoever sends it. So a
body that is smaller than the budget divided by the connections is never given up: reviews of
ordinary pods are answered, whatever else comes.
"""

from __future__ import annotations

__all__ = ["Bodies", "Body", "GivenUp"]


class GivenUp(Exception):
    """There was no room for this body."""


class Bodies:
    """What is held of bodies, by all requests of a server. For one thread: the event loop's.

    Args:
        most_bytes: of all bodies together.

    Attributes:
        given_up: how many were, so far.
    """

    def __init__(self, most_bytes: int) -> None:
        self.given_up = 0
        self._most_bytes = most_bytes
        self._held = 0
        self._open: set[Body] = set()

    def open(self) -> Body:
        """One more; to be closed when it has been handed on."""
        body = Body(self)
        self._open.add(body)
        return body

    def _add(self, body: Body, chunk: bytes) -> None:
        # Most come in one piece, which is not copied.
        if not body.data:
            body.data = chunk
        elif isinstance(body.data, bytearray):
            body.data += chunk
        else:
            body.data = bytearray(body.data) + chunk
        self._held += len(chunk)
        while self._held > self._most_bytes:
            largest = max(self._open, key=lambda each: len(each.data))
            largest.is_given_up = True
            self._empty(largest)
            self.given_up += 1

    def _close(self, body: Body) -> None:
        self._empty(body)
        self._open.discard(body)

    def _empty(self, body: Body) -> None:
        self._held -= len(body.data)
        body.data = b""


class Body:
    """One body, as far as it has come.

    Attributes:
        data: that.
        is_given_up: its bytes are gone, and it is not to be gone on with.
    """

    def __init__(self, bodies: Bodies) -> None:
        self.data: bytes | bytearray = b""
        self.is_given_up = False
        self._bodies = bodies

    def add(self, chunk: bytes) -> None:
        """More of it has come.

        Raises:
            GivenUp: this one was the largest when there was no room, now or earlier.
        """
        if not self.is_given_up:
            self._bodies._add(self, chunk)
        if self.is_given_up:
            raise GivenUp

    def close(self) -> None:
        """Frees its bytes."""
        self._bodies._close(self)
