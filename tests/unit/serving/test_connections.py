"""Whoever opens connections and is silent takes none from those who ask."""

import contextlib
import http.client
import json
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator

import pytest
from starlette.applications import Starlette

from cluster.waiting import until
from hami_py.serving import Listen, Server, Tls, json_route, page
from hami_py.webhook.certificates import Certificates, Lifetimes, bundle, step

HERE = "127.0.0.1"
ELSEWHERE = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
#: Seconds; no test waits so long.
LONG = 60.0
SHORT = 0.7

HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
UNFINISHED = (b"", b"\r\n", b"G", b"GET / HTTP/1.1\r\nHost: ")


class Site:
    """A listener, and ways to it from several addresses."""

    def __init__(self, connections: int, head_s: float, *, has_tls: bool) -> None:
        tls, self._trusting = None, None
        if has_tls:
            made = step(Certificates(), [HERE], time.time(), Lifetimes())
            assert made.serving is not None
            tls = Tls()
            tls.show(made.serving.certificate, made.serving.key)
            self._trusting = ssl.create_default_context(cadata=bundle(made))
        size = json_route("/size", json.loads, len, most_bytes=100)
        app = Starlette(routes=[page("/", lambda: (200, "here\n")), size])
        self.server = Server(app, Listen(HERE, 0, connections, head_s), tls=tls)
        self.server.start()
        self._opened = contextlib.ExitStack()

    def silent(self, source: str = HERE) -> socket.socket:
        """A connection on which nothing has been sent, no handshake either."""
        link = socket.create_connection(
            (HERE, self.server.port), timeout=LONG, source_address=(source, 0)
        )
        return self._opened.enter_context(link)

    def ready(self, source: str = HERE) -> socket.socket:
        """A connection on which a request can be sent."""
        link = self.silent(source)
        if self._trusting is None:
            return link
        return self._opened.enter_context(self._trusting.wrap_socket(link, server_hostname=HERE))

    def is_answered(self, source: str = HERE) -> bool:
        """Whether a new connection from there is let in; it is closed again."""
        try:
            with self.ready(source) as link:
                return asked(link)
        except OSError:
            return False

    def end(self) -> None:
        self._opened.close()
        self.server.stop()
        assert not self.server.thread.is_alive()


Open = Callable[..., Site]


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def has_tls(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def opened(has_tls: bool) -> Iterator[Open]:
    sites: list[Site] = []

    def one(connections: int = 8, head_s: float = LONG) -> Site:
        sites.append(Site(connections, head_s, has_tls=has_tls))
        return sites[-1]

    yield one
    for site in sites:
        site.end()


def asked(link: socket.socket, request: bytes = HEAD) -> bool:
    """Whether a request is answered with 200; the connection stays."""
    link.sendall(request)
    answer = http.client.HTTPResponse(link)
    try:
        answer.begin()
        answer.read()
    except http.client.HTTPException:
        return False
    return answer.status == 200


def is_closed(link: socket.socket) -> bool:
    """Waits until the other side has closed it, or sends something."""
    try:
        return link.recv(1) == b""
    except (ConnectionError, ssl.SSLError):
        return True


def still_open(links: list[socket.socket]) -> int:
    """How many the other side has neither closed nor sent anything on."""
    return len(links) - len(select.select(links, [], [], 0)[0])


def test_silent_connections_turn_nobody_off(opened: Open) -> None:
    """They made a listener answer 503, on the API server's open connection too, and for ever."""
    site = opened(connections=8)
    kept = site.ready()
    assert asked(kept)
    silent = [site.silent(ELSEWHERE[0]) for _ in range(30)]
    # Connections are accepted in their order: where this one is through, so are those before it.
    assert not site.is_answered(ELSEWHERE[0])
    assert still_open(silent) == 6
    assert asked(kept)
    assert site.is_answered(ELSEWHERE[1])


def test_at_the_limit_a_new_one_is_closed_and_those_there_are_answered(opened: Open) -> None:
    site = opened(connections=8)
    first = [site.ready(ELSEWHERE[0]) for _ in range(6)]
    second = [site.ready(ELSEWHERE[1]) for _ in range(2)]
    for source in (HERE, *ELSEWHERE):
        assert not site.is_answered(source)
    assert all(asked(link) for link in (*first, *second))
    # And whose end has been seen leaves its place to another.
    first.pop().close()
    until(lambda: site.is_answered(ELSEWHERE[2]), "there is room again")
    assert all(asked(link) for link in (*first, *second))


def test_one_that_does_not_ask_is_closed(opened: Open) -> None:
    site = opened(head_s=SHORT)
    links = [site.ready() for _ in UNFINISHED]
    for link, sent in zip(links, UNFINISHED, strict=True):
        link.sendall(sent)
    assert all(is_closed(link) for link in links)


def test_one_that_does_not_ask_again_to_the_end_is_closed(opened: Open) -> None:
    """An empty line alone ended uvicorn's wait for another request, and no other began."""
    site = opened(head_s=SHORT)
    for sent in UNFINISHED[1:]:
        link = site.ready()
        assert asked(link)
        link.sendall(sent)
        assert is_closed(link)


def test_a_head_that_comes_byte_by_byte_has_no_longer(opened: Open) -> None:
    link = opened(head_s=SHORT).ready()

    def is_cut() -> bool:
        try:
            link.sendall(b"x")
            link.settimeout(0.01)
            return link.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True

    link.sendall(b"GET /")
    until(is_cut, "it is closed while it sends", LONG)


@pytest.mark.parametrize("has_tls", [True], indirect=True)
def test_one_without_a_handshake_is_closed(opened: Open) -> None:
    assert is_closed(opened(head_s=SHORT).silent())


def test_who_has_asked_may_be_idle_and_whose_head_is_there_may_be_slow(opened: Open) -> None:
    site = opened(head_s=SHORT)
    idle, slow = site.ready(), site.ready()
    assert asked(idle)
    slow.sendall(b"POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n")
    # The two have been there for longer than this one.
    assert is_closed(site.ready())
    assert asked(slow, b'"abc"')
    assert asked(idle)


@pytest.mark.parametrize("has_tls", [True], indirect=True)
def test_handshakes_that_fail_leave_their_places(opened: Open) -> None:
    site = opened(connections=4)
    for sent in (b"", b"rubbish\r\n\r\n", b"\x16\x03\x01"):
        for _ in range(8):
            with site.silent() as link:
                link.sendall(sent)
        until(site.is_answered, f"those that sent {sent!r} are gone")
