"""Whoever opens connections and does not ask takes none from those who do."""

import select
import socket

import pytest

from cluster.waiting import until
from unit.serving.site import BODY, ELSEWHERE, HEAD, HERE, LONG, SHORT, Open, asked, is_closed


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


@pytest.mark.parametrize("has_tls", [True], indirect=True)
def test_handshakes_that_fail_leave_their_places(opened: Open) -> None:
    site = opened(connections=4)
    for sent in (b"", b"rubbish\r\n\r\n", b"\x16\x03\x01"):
        for _ in range(8):
            with site.silent() as link:
                link.sendall(sent)
        until(site.is_answered, f"those that sent {sent!r} are gone")
