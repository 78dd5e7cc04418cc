"""One connection that is kept, over which a load generator asks and takes the time.

Plain sockets: a client library would take as long as the answer that is measured.
"""

import contextlib
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_DEADLINE = 60.0


class Connection:
    """HTTP/1.1 to a port of loopback, as Go's client writes it."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout=_DEADLINE)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = context.wrap_socket(plain, server_hostname="127.0.0.1") if context else plain
        self._host = f"127.0.0.1:{port}"
        # Used again for each answer: to get new memory for one takes as long as to read it.
        self._buffer = bytearray(1 << 20)

    def ask(self, path: str, body: bytes) -> bytes:
        """A POST's answer; an error where it is none of 200."""
        self.send(path, body)
        return self.receive()

    def send(self, path: str, body: bytes) -> None:
        """The question alone."""
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nUser-Agent: Go-http-client/1.1\r\n"
            f"Content-Length: {len(body)}\r\nContent-Type: application/json\r\n"
            "Accept-Encoding: gzip\r\n\r\n"
        )
        self._socket.sendall(head.encode() + body)

    def receive(self) -> bytes:
        """The answer to what was sent."""
        read = self._read(0)
        while (end := self._buffer.find(b"\r\n\r\n", 0, read)) < 0:
            read += self._read(read)
        status, *lines = bytes(self._buffer[:end]).lower().split(b"\r\n")
        length = next(int(each[15:]) for each in lines if each.startswith(b"content-length:"))
        begin = end + 4
        while read < begin + length:
            read += self._read(read)
        body = bytes(memoryview(self._buffer)[begin:read])
        assert status.split()[1] == b"200", (status, body)
        return body

    def close(self) -> None:
        self._socket.close()

    def _read(self, at: int) -> int:
        if at == len(self._buffer):
            self._buffer += bytes(at)
        count = self._socket.recv_into(memoryview(self._buffer)[at:])
        assert count, "the connection ended before the answer did"
        return count


@contextlib.contextmanager
def connections(
    count: int, port: int, context: ssl.SSLContext | None = None
) -> Iterator[list[Connection]]:
    """So many, closed at the end."""
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(count):
            opened.append(Connection(port, context))
            stack.callback(opened[-1].close)
        yield opened


@dataclass(frozen=True)
class Answered:
    """The results of many requests: the seconds of each, and of all together."""

    seconds: list[float]
    took_s: float
    answers: list[bytes]


def in_turn(asked: Sequence[Connection], path: str, bodies: Sequence[bytes]) -> Answered:
    """Asks all of it, on every connection one at a time, on all of them at once."""
    count = len(asked)
    began = [0.0] * len(bodies)
    seconds, answers = [], []
    start = time.perf_counter()
    for at in range(min(count, len(bodies))):
        began[at] = time.perf_counter()
        asked[at].send(path, bodies[at])
    for at in range(len(bodies)):
        answers.append(asked[at % count].receive())
        now = time.perf_counter()
        seconds.append(now - began[at])
        if at + count < len(bodies):
            began[at + count] = now
            asked[at % count].send(path, bodies[at + count])
    return Answered(seconds, time.perf_counter() - start, answers)
