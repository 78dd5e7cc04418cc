"""The webhook's memory has a bound for any input; ordinary reviews are answered meanwhile."""

import contextlib
import http.client
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.servers import free_ports
from services.api_server import api_server
from services.running import DEADLINE, Connect, ask, command, resident, trusting, until_ready

CONNECTIONS = 300
BODY = 4 << 20
PIECE = 64 << 10
#: The memory limit in `deploy/webhook`.
LIMIT = 256 << 20


class Slow:
    """A connection that sends one body, of a size that is let in, piece by piece; never its end.

    A body has its time. On a busy machine that is over, and the connection with it, while there is
    more to send: then it is cut.
    """

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE)
        self.link = context.wrap_socket(plain)
        head = f"POST /mutate HTTP/1.1\r\nHost: here\r\nContent-Length: {BODY}\r\n\r\n"
        self.link.sendall(head.encode() + b'{"')
        self.left = BODY - 3
        self.is_cut = False

    def send(self) -> bool:
        """One more piece; whether there is more to send."""
        piece = min(PIECE, self.left)
        try:
            self.link.sendall(b"x" * piece)
        except (ConnectionError, ssl.SSLError):
            self.is_cut = True
        self.left -= piece
        return self.left > 0 and not self.is_cut

    def status(self) -> int:
        """The response to it."""
        self.link.settimeout(DEADLINE)
        return int(self.link.recv(4096).split()[1])


@contextlib.contextmanager
def webhook(folder: Path, context: ssl.SSLContext) -> Iterator[tuple[Connect, int, int]]:
    """How to connect, its port and PID."""
    (port,) = free_ports(1)

    def connect() -> http.client.HTTPConnection:
        return http.client.HTTPSConnection("127.0.0.1", port, timeout=DEADLINE, context=context)

    with api_server(folder) as kubeconfig:
        listen = ("--listen", f"127.0.0.1:{port}", "--kubeconfig", str(kubeconfig))
        with command(folder / "log", "webhook", *listen) as pid:
            until_ready(connect)
            yield connect, port, pid


@pytest.mark.timeout(300)
@pytest.mark.tier("ci")
def test_hundreds_of_slow_large_bodies_take_bounded_memory(tmp_path: Path) -> None:
    """They are 1.2 GiB in all; once, the webhook held every byte of it."""
    context = trusting()
    started = webhook(tmp_path, context)
    with started as (connect, port, pid), contextlib.ExitStack() as links:
        most = 0
        slow = [Slow(port, context) for _ in range(CONNECTIONS)]
        for each in slow:
            links.enter_context(each.link)
        sending = slow
        while sending:
            sending = [each for each in sending if each.send()]
            most = max(most, resident(pid))
            # An API server sends its reviews whole, and small.
            assert ask(connect, "/mutate", "admission-review-create")[0] == 200
        assert most < LIMIT
        assert {each.status() for each in slow if not each.is_cut} <= {408, 503}
        assert ask(connect, "/mutate", "admission-review-create")[0] == 200
