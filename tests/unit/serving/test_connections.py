"""Whoever opens connections and does not ask takes none from those who do."""

import contextlib
import http.client
import json
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator

import pytest
from starlette.routing import Router

from cluster.waiting import until
from hami_py.serving import Listen, Server, Tls, json_route, page
from hami_py.webhook.certificates import Certificates, Lifetimes, bundle, step

HERE = "127.0.0.1"
ELSEWHERE = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
#: Seconds; no test waits so long.
LONG = 60.0
SHORT = 0.7
#: Bytes; more than the kernels at both ends hold of a connection.
LARGE = 64 << 20

HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
BODY = b'"abc"'
ASKS = b"POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
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
        large = page("/large", lambda: (200, "x" * LARGE))
        app = Router([page("/", lambda: (200, "here\n")), size, large])
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

    def idle(self, source: str = HERE) -> socket.socket:
        """A connection on which a request has been answered."""
        link = self.ready(source)
        assert asked(link)
        return link

    def used(self, source: str = HERE) -> socket.socket:
        """A connection with a request whose head is there; it is answered behind ``BODY``."""
        link = self.ready(source)
        link.sendall(ASKS)
        assert link.recv(len(CONTINUE)) == CONTINUE
        return link

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
    kept = site.idle()
    silent = [site.silent(ELSEWHERE[0]) for _ in range(30)]
    # Connections are accepted in their order: where this one is through, so are those before it.
    assert site.is_answered(ELSEWHERE[0])
    assert still_open(silent) == 5
    assert still_open(silent[-5:]) == 5
    assert asked(kept)
    assert site.is_answered(ELSEWHERE[1])


def test_where_all_are_in_use_a_new_one_is_closed_and_those_there_are_answered(
    opened: Open,
) -> None:
    site = opened(connections=8)
    used = [site.used(ELSEWHERE[0]) for _ in range(6)]
    used += [site.used(ELSEWHERE[1]) for _ in range(2)]
    for source in (HERE, *ELSEWHERE):
        assert not site.is_answered(source)
    assert asked(used[0], BODY)
    # It is not in use any more, and makes room.
    assert site.is_answered(ELSEWHERE[2])
    assert is_closed(used[0])
    assert all(asked(link, BODY) for link in used[1:])


def test_peers_that_keep_all_connections_keep_nobody_out(opened: Open) -> None:
    """Five of them held all 512 for ever, with a request now and then; probes were turned away."""
    site = opened(connections=8)
    many = [site.idle(ELSEWHERE[0]) for _ in range(6)]
    few = [site.idle(ELSEWHERE[1]) for _ in range(2)]
    late = [site.idle(ELSEWHERE[2]), site.idle(HERE)]
    # Of the peer with the most those went that had been idle for longest.
    assert all(is_closed(link) for link in many[:2])
    assert all(asked(link) for link in (*many[2:], *few, *late))
    # The same again: whoever was asked last is the last to go.
    assert all(asked(link) for link in reversed(many[2:]))
    late.append(site.idle(HERE))
    assert is_closed(many[-1])
    assert all(asked(link) for link in (*many[2:-1], *few, *late))


def test_whoever_comes_anew_and_anew_pushes_out_its_own_alone(opened: Open) -> None:
    site = opened(connections=8)
    kept = [site.idle(HERE), site.idle(HERE), site.idle(ELSEWHERE[0])]
    for _ in range(10):
        for source in ELSEWHERE[1:]:
            site.idle(source)
            site.silent(source)
    assert all(asked(link) for link in kept)


def test_where_a_peers_own_are_all_in_use_no_others_idle_one_goes(opened: Open) -> None:
    site = opened(connections=8)
    kept = site.idle(HERE)
    used = [site.used(ELSEWHERE[0]) for _ in range(6)]
    for _ in range(3):
        assert not site.is_answered(ELSEWHERE[0])
    assert asked(kept)
    assert all(asked(link, BODY) for link in used)


def test_where_each_peer_has_one_the_longest_idle_makes_room(opened: Open) -> None:
    site = opened(connections=4)
    links = [site.idle(f"127.0.0.{number}") for number in range(10, 14)]
    assert asked(links[0])
    last = site.idle("127.0.0.20")
    assert is_closed(links[1])
    assert all(asked(link) for link in (links[0], *links[2:], last))


def test_unfinished_heads_make_room_and_requests_do_not(opened: Open) -> None:
    site = opened(connections=8)
    used = site.used(ELSEWHERE[0])
    begun = [site.ready(ELSEWHERE[0]) for _ in range(5)]
    begun += [site.ready(ELSEWHERE[1]) for _ in range(2)]
    for link in begun:
        link.sendall(b"GET /")
    for _ in range(20):
        site.idle(HERE)
    assert asked(used, BODY)


def test_who_takes_no_answer_makes_room(opened: Open) -> None:
    site = opened(connections=1, head_s=SHORT)
    site.ready(ELSEWHERE[0]).sendall(HEAD.replace(b"/", b"/large", 1))
    until(site.is_answered, "it has been sent nothing for long enough", LONG)


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
    slow.sendall(ASKS.replace(b"Expect: 100-continue\r\n", b""))
    # The two have been there for longer than this one.
    assert is_closed(site.ready())
    assert asked(slow, BODY)
    assert asked(idle)


@pytest.mark.parametrize("has_tls", [True], indirect=True)
def test_handshakes_that_fail_leave_their_places(opened: Open) -> None:
    site = opened(connections=4)
    for sent in (b"", b"rubbish\r\n\r\n", b"\x16\x03\x01"):
        for _ in range(8):
            with site.silent() as link:
                link.sendall(sent)
        until(site.is_answered, f"those that sent {sent!r} are gone")
