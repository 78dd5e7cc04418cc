"""The server of the page: what it refuses, its headers, and clients that are slow."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import socket
from collections.abc import Iterator

import pytest

from hami_py.serving import Listen, Server
from hami_py.view.application import NoToken, Viewer, application
from hami_py.view.session import Refused
from hami_py.view.sessions import Busy
from unit.view.made_up import GIB, HOSTILE, MadeUp, overview

HERE = "127.0.0.1"
SIGNED = {"Authorization": "Bearer good"}
PATHS = ("/", "/page.js", "/api/picture", "/api/node", "/healthz", "/nothing")


class Served:
    """The application with a made-up cluster."""

    def __init__(self, connections: int = 256, head_s: float = 60.0) -> None:
        self.viewer = MadeUp(overview(3, 2))
        self.busy = False
        self.namespaces: list[str] = []
        app = application(self._find, {HERE})
        self.server = Server(app, Listen(HERE, 0, connections, head_s))
        self.server.start()

    def _find(self, token: str | None, namespace: str) -> Viewer:
        if token != "good":  # noqa: S105
            raise NoToken
        if self.busy:
            raise Busy
        self.namespaces.append(namespace)
        return self.viewer

    def ask(
        self, path: str, headers: dict[str, str] | None = None, method: str = "GET"
    ) -> tuple[http.client.HTTPResponse, bytes]:
        link = http.client.HTTPConnection(HERE, self.server.port, timeout=60)
        with contextlib.closing(link):
            link.request(method, path, headers=headers or {})
            answer = link.getresponse()
            return answer, answer.read()


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.server.stop()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY"])
def test_other_methods_are_refused(served: Served, method: str, path: str) -> None:
    answer, _ = served.ask(path, SIGNED, method)
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_binds_the_browser(served: Served, path: str) -> None:
    for headers in ({}, SIGNED, SIGNED | {"Host": "evil.example"}):
        answer, _ = served.ask(path, headers)
        policy = answer.headers["Content-Security-Policy"].split("; ")
        assert policy[0] == "default-src 'none'"
        assert not [each for each in policy if "unsafe" in each or "*" in each or "http" in each]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cache-Control"] == "no-store"


def test_head_has_no_body(served: Served) -> None:
    answer, body = served.ask("/", method="HEAD")
    assert (answer.status, body) == (200, b"")


def test_another_name_of_the_host_is_refused(served: Served) -> None:
    """A page of another site may call a loopback address by its own name."""
    for host in ("evil.example", f"evil.example:{served.server.port}", ""):
        answer, body = served.ask("/api/picture", SIGNED | {"Host": host})
        assert answer.status == 421
        assert b"gpu-000" not in body
    assert served.ask("/api/picture", SIGNED | {"Host": f"{HERE}:1"})[0].status == 200


@pytest.mark.parametrize("header", [None, "Bearer bad", "Bearer", "Basic good", "good"])
@pytest.mark.parametrize("path", ["/api/picture", "/api/node?name=gpu-000"])
def test_without_a_token_nothing_is_shown(served: Served, path: str, header: str | None) -> None:
    answer, body = served.ask(path, {} if header is None else {"Authorization": header})
    assert answer.status == 401
    assert b"gpu-000" not in body


def test_a_picture_is_sent_once(served: Served) -> None:
    first, body = served.ask("/api/picture", SIGNED)
    assert json.loads(body)["nodes"][0]["cards"][1]["memory"] == 80 * GIB
    same = SIGNED | {"If-None-Match": first.headers["ETag"]}
    answer, nothing = served.ask("/api/picture", same)
    assert (answer.status, nothing) == (304, b"")
    packed, data = served.ask("/api/picture", SIGNED | {"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(data) == body
    served.viewer.show(overview(3, 2, step=1))
    assert served.ask("/api/picture", same)[0].status == 200


def test_texts_are_data(served: Served) -> None:
    answer, body = served.ask("/api/picture", SIGNED)
    assert answer.headers["Content-Type"] == "application/json"
    assert HOSTILE in json.loads(body)["events"][0]["message"]


def test_an_open_node_has_its_containers_and_its_hour(served: Served) -> None:
    _, body = served.ask("/api/node?name=gpu-001", SIGNED)
    found = json.loads(body)
    assert {each["node"] for each in found["containers"]} == {"gpu-001"}
    assert found["history"] is None
    _, body = served.ask("/api/node?name=gpu-001&history=1", SIGNED)
    series = json.loads(body)["history"]["series"]
    assert {len(each["memory"]) for each in series} == {180}
    assert served.ask("/api/node?name=gpu-009", SIGNED)[0].status == 404


def test_what_cannot_be_shown_is_said(served: Served) -> None:
    assert served.ask("/api/picture?namespace=a/../b", SIGNED)[0].status == 400
    assert served.ask("/api/picture?namespace=red", SIGNED)[0].status == 200
    assert served.namespaces == ["red"]
    served.viewer.shown = None
    served.viewer.problem = "the API server does not answer"
    answer, body = served.ask("/api/picture", SIGNED)
    assert (answer.status, json.loads(body)) == (202, {"error": "the API server does not answer"})
    served.viewer.refused = Refused(403, "you may not")
    answer, body = served.ask("/api/picture", SIGNED)
    assert (answer.status, json.loads(body)) == (403, {"error": "you may not"})
    served.busy = True
    answer, _ = served.ask("/api/picture", SIGNED)
    assert (answer.status, answer.headers["Retry-After"]) == (503, "2")


def test_a_hundred_slow_clients_do_not_keep_others_out() -> None:
    """Half of them send a head that never ends, and half never read what they have asked for.

    All come from one address, as behind a proxy, and are more than the listener admits.
    """
    served = Served(connections=64)
    served.viewer.show(overview(200, 8))
    with contextlib.ExitStack() as ends:
        ends.callback(served.server.stop)
        for number in range(100):
            link = ends.enter_context(socket.create_connection((HERE, served.server.port), 60))
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            link.sendall(b"GET /api/picture HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            if number % 2:
                link.sendall(b"Authorization: Bearer good\r\n\r\n")
        for _ in range(10):
            answer, body = served.ask("/api/picture", SIGNED)
            assert answer.status == 200
            assert len(json.loads(body)["nodes"]) == 200
