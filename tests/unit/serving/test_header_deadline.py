"""A request head has a deadline; bodies, responses and idle connections do not share it."""

import pytest

from cluster.waiting import until
from unit.serving.listener import ASKS, BODY, LONG, SHORT, Open, asked, is_closed, is_fine

UNFINISHED = (b"", b"\r\n", b"G", b"GET / HTTP/1.1\r\nHost: ")


def test_a_connection_without_a_request_is_closed(opened: Open) -> None:
    listener = opened(head_s=SHORT)
    links = [listener.ready() for _ in UNFINISHED]
    for link, sent in zip(links, UNFINISHED, strict=True):
        link.sendall(sent)
    assert all(is_closed(link) for link in links)


def test_a_connection_with_an_incomplete_second_request_is_closed(opened: Open) -> None:
    """An empty line alone ended uvicorn's wait for another request, and no other began."""
    listener = opened(head_s=SHORT)
    for sent in UNFINISHED[1:]:
        link = listener.ready()
        assert asked(link)
        link.sendall(sent)
        assert is_closed(link)


def test_a_head_sent_byte_by_byte_has_the_same_deadline(opened: Open) -> None:
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
def test_a_connection_without_a_handshake_is_closed(opened: Open) -> None:
    assert is_closed(opened(head_s=SHORT).silent())


def test_idle_connections_and_slow_bodies_are_not_closed(opened: Open) -> None:
    listener = opened(head_s=SHORT)
    idle, slow = listener.ready(), listener.ready()
    assert asked(idle)
    slow.sendall(ASKS.replace(b"Expect: 100-continue\r\n", b""))
    # The two have been there for longer than this one.
    assert is_closed(listener.ready())
    assert asked(slow, BODY)
    assert asked(idle)


@pytest.mark.tier("torture")  # It waits, and a machine that pauses makes it fail.
def test_a_response_may_take_longer_than_a_head(opened: Open) -> None:
    """Waits several times as long as a head may take, with answers under way."""
    listener = opened(head_s=SHORT)
    head = ASKS.replace(b"/size", b"/held").replace(b"Expect: 100-continue\r\n", b"")
    whole, parts, idle = links = [listener.ready(), listener.ready(), listener.idle()]
    whole.sendall(head + BODY)
    for link in (parts, idle):
        link.sendall(head)
    # Each of these is there for as long as a head may take.
    assert is_closed(listener.ready())
    for link in (parts, idle):
        link.sendall(BODY)
    assert is_closed(listener.ready())
    assert is_closed(listener.ready())
    listener.goes_on.set()
    assert all(map(is_fine, links))
    assert is_closed(listener.ready())
    # Nor does it begin one that they were answered.
    assert all(asked(link) for link in links)
