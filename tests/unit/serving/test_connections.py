"""Connections without a request take no slot from connections with requests."""

import select
import socket

import pytest

from cluster.waiting import until
from unit.serving.listener import BODY, ELSEWHERE, HEAD, HERE, LONG, SHORT, Open, asked, is_closed


def still_open(links: list[socket.socket]) -> int:
    """How many the other side has neither closed nor sent anything on."""
    return len(links) - len(select.select(links, [], [], 0)[0])


def test_silent_connections_reject_no_other(opened: Open) -> None:
    """They made a listener answer 503, on the API server's open connection too, and for ever."""
    listener = opened(connections=8)
    kept = listener.idle()
    silent = [listener.silent(ELSEWHERE[0]) for _ in range(30)]
    # Connections are accepted in their order: where this one is through, so are those before it.
    assert listener.is_answered(ELSEWHERE[0])
    assert still_open(silent) == 5
    assert still_open(silent[-5:]) == 5
    assert asked(kept)
    assert listener.is_answered(ELSEWHERE[1])


def test_if_all_are_in_use_a_new_connection_is_closed(
    opened: Open,
) -> None:
    listener = opened(connections=8)
    used = [listener.used(ELSEWHERE[0]) for _ in range(6)]
    used += [listener.used(ELSEWHERE[1]) for _ in range(2)]
    for source in (HERE, *ELSEWHERE):
        assert not listener.is_answered(source)
    assert asked(used[0], BODY)
    # It is not in use now, so it can be closed for another.
    assert listener.is_answered(ELSEWHERE[2])
    assert is_closed(used[0])
    assert all(asked(link, BODY) for link in used[1:])


def test_peers_with_many_connections_block_no_other(opened: Open) -> None:
    """Five of them held all 512 connections with a request now and then; probes were refused."""
    listener = opened(connections=8)
    many = [listener.idle(ELSEWHERE[0]) for _ in range(6)]
    few = [listener.idle(ELSEWHERE[1]) for _ in range(2)]
    late = [listener.idle(ELSEWHERE[2]), listener.idle(HERE)]
    # Of the peer with the most those went that had been idle for longest.
    assert all(is_closed(link) for link in many[:2])
    assert all(asked(link) for link in (*many[2:], *few, *late))
    # The same again: the connection with the latest request is closed last.
    assert all(asked(link) for link in reversed(many[2:]))
    late.append(listener.idle(HERE))
    assert is_closed(many[-1])
    assert all(asked(link) for link in (*many[2:-1], *few, *late))


def test_a_peer_that_reconnects_closes_only_its_own_connections(opened: Open) -> None:
    listener = opened(connections=8)
    kept = [listener.idle(HERE), listener.idle(HERE), listener.idle(ELSEWHERE[0])]
    for _ in range(10):
        for source in ELSEWHERE[1:]:
            listener.idle(source)
            listener.silent(source)
    assert all(asked(link) for link in kept)


def test_if_a_peers_connections_are_in_use_no_other_peers_is_closed(opened: Open) -> None:
    listener = opened(connections=8)
    kept = listener.idle(HERE)
    used = [listener.used(ELSEWHERE[0]) for _ in range(6)]
    for _ in range(3):
        assert not listener.is_answered(ELSEWHERE[0])
    assert asked(kept)
    assert all(asked(link, BODY) for link in used)


def test_if_each_peer_has_one_the_longest_idle_is_closed(opened: Open) -> None:
    listener = opened(connections=4)
    links = [listener.idle(f"127.0.0.{number}") for number in range(10, 14)]
    assert asked(links[0])
    last = listener.idle("127.0.0.20")
    assert is_closed(links[1])
    assert all(asked(link) for link in (links[0], *links[2:], last))


def test_incomplete_heads_are_closed_and_requests_are_not(opened: Open) -> None:
    listener = opened(connections=8)
    used = listener.used(ELSEWHERE[0])
    begun = [listener.ready(ELSEWHERE[0]) for _ in range(5)]
    begun += [listener.ready(ELSEWHERE[1]) for _ in range(2)]
    for link in begun:
        link.sendall(b"GET /")
    for _ in range(20):
        listener.idle(HERE)
    assert asked(used, BODY)


def test_a_peer_that_reads_no_response_is_closed(opened: Open) -> None:
    listener = opened(connections=1, head_s=SHORT)
    listener.ready(ELSEWHERE[0]).sendall(HEAD.replace(b"/", b"/large", 1))
    until(listener.is_answered, "it has been sent nothing for long enough", LONG)


@pytest.mark.parametrize("has_tls", [True], indirect=True)
def test_failed_handshakes_release_their_slots(opened: Open) -> None:
    listener = opened(connections=4)
    for sent in (b"", b"rubbish\r\n\r\n", b"\x16\x03\x01"):
        for _ in range(8):
            with listener.silent() as link:
                link.sendall(sent)
        until(listener.is_answered, f"those that sent {sent!r} are gone")
