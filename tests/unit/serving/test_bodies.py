"""A budget for all bodies that are read at once: the largest goes, the small ones are read."""

import http.client
import json
import random
import socket
from collections.abc import Iterator

import pytest
from starlette.routing import Router

from cluster.waiting import until
from hami_py.serving import Bodies, Listen, Server, json_route
from hami_py.serving.bodies import Body, NoRoom

BUDGET = 100_000


def is_in(body: Body, size: int) -> bool:
    try:
        body.add(bytes(size))
    except NoRoom:
        return False
    return True


def test_the_largest_body_is_dropped_for_others() -> None:
    bodies = Bodies(BUDGET)
    small, large, next_ = bodies.new(), bodies.new(), bodies.new()
    assert is_in(small, 30_000)
    assert is_in(large, 60_000)
    assert is_in(next_, 20_000)
    assert not is_in(large, 1)
    assert is_in(small, 50_000)
    assert bodies.dropped == 1
    # It holds nothing, and closing gives back what is held.
    small.close()
    large.close()
    assert is_in(bodies.new(), 80_000)
    assert is_in(next_, 0)


def test_a_body_above_the_limit_drops_no_others() -> None:
    bodies = Bodies(BUDGET)
    small = bodies.new()
    assert is_in(small, 10)
    assert not is_in(bodies.new(), BUDGET)
    assert is_in(small, 10)
    assert bytes(small.data) == bytes(20)


@pytest.mark.parametrize("seed", range(20))
def test_held_bytes_are_limited_and_small_bodies_stay(seed: int) -> None:
    prng = random.Random(seed)  # noqa: S311
    bodies, count = Bodies(BUDGET), 20
    there: dict[Body, int] = {}
    for _ in range(2000):
        if len(there) < count:
            there[bodies.new()] = 0
        body = prng.choice(list(there))
        if is_in(body, prng.choice((1, 100, 5_000, 30_000))):
            there[body] = len(body.data)
        else:
            assert body.data == b""
            there.pop(body)
            body.close()
        # Counted here, from what each has.
        assert sum(len(each.data) for each in there) <= BUDGET
        for each, size in there.items():
            assert len(each.data) == size or (not each.data and size >= BUDGET / count)
        if prng.random() < 0.1:
            done = prng.choice(list(there))
            there.pop(done)
            done.close()


@pytest.fixture
def listening() -> Iterator[tuple[int, Bodies]]:
    bodies = Bodies(BUDGET)
    route = json_route("/", json.loads, len, most_bytes=90_000, bodies=bodies)
    server = Server(Router([route]), Listen())
    server.start()
    yield server.port, bodies
    server.stop()


def begun(port: int, length: int, first: bytes) -> socket.socket:
    link = socket.create_connection(("127.0.0.1", port), timeout=30)
    link.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % length + first)
    return link


def answer(link: socket.socket) -> tuple[int, str]:
    with link:
        got = http.client.HTTPResponse(link)
        got.begin()
        return got.status, got.read().decode()


def test_a_dropped_request_is_answered_with_503(listening: tuple[int, Bodies]) -> None:
    port, bodies = listening
    larger = begun(port, 85_000, b'"' + b"x" * 80_000)
    other = begun(port, 50_000, b'"' + b"x" * 45_000)
    until(lambda: bodies.dropped == 1, "they have met")
    larger.sendall(b"x")
    assert answer(larger) == (503, '{"error":"too many large bodies at once; try again later"}')
    other.sendall(b"x" * 4_998 + b'"')
    assert answer(other) == (200, "49998")
    # And there is room again.
    again = begun(port, 85_000, b'"' + b"x" * 84_998 + b'"')
    assert answer(again) == (200, "84998")
