"""Every request ends in time, however its answer comes; a watch may go on for ever."""

from __future__ import annotations

import contextlib
import gc
import http.client
import itertools
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from cluster.waiting import until
from hami_py.kube import ApiServer, list_objects, server
from hami_py.kube.errors import Conflict, NotFound, Rejected, Unavailable
from hami_py.model.pods import objects
from hami_py.webhook.certificates import Certificates, Lifetimes, bundle, step

HERE = "127.0.0.1"
#: Seconds; far more than a request with the deadline ``SHORT`` takes.
LONG = 60.0
SHORT = 0.7
#: Seconds between two bytes; often enough that no single read is ever too slow.
DROP = 0.05

Chunks = Iterable[bytes]

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


def sized(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Scripted:
    """A server that says to each request what comes next, and counts its connections."""

    def __init__(self, folder: Path, *, has_tls: bool) -> None:
        self.connections = 0
        self.requests = 0
        self.answers: list[Chunks] = []
        self._tls: ssl.SSLContext | None = None
        self._ending = threading.Event()
        self._threads: list[threading.Thread] = []
        self._listening = socket.create_server((HERE, 0))
        from kubernetes import client

        self.configuration = client.Configuration()
        self.configuration.retries = False
        scheme = "http"
        if has_tls:
            scheme = "https"
            made = step(Certificates(), [HERE], time.time(), Lifetimes())
            assert made.serving is not None
            (folder / "ca.pem").write_text(bundle(made))
            (folder / "own.pem").write_text(made.serving.key + made.serving.certificate)
            self.configuration.ssl_ca_cert = str(folder / "ca.pem")
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(folder / "own.pem")
        self.configuration.host = f"{scheme}://{HERE}:{self._listening.getsockname()[1]}"
        self.api = ApiServer(client.ApiClient(self.configuration))
        self._begin(self._accept)

    def drops(self, first: bytes, drop: bytes) -> Chunks:
        """Bytes, and then a few more from time to time, until the test ends."""
        yield first
        while not self._ending.wait(DROP):
            yield drop

    def stalls(self, first: bytes) -> Chunks:
        """Bytes, and then none until the test ends."""
        yield first
        self._ending.wait(LONG)

    def late(self, answer: bytes) -> Chunks:
        """An answer in one piece, after a while."""
        self._ending.wait(DROP)
        yield answer

    def end(self) -> None:
        self._ending.set()
        # A thread that waits in accept() is woken by that alone.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.api.close()
        for thread in self._threads:
            thread.join(LONG)
            assert not thread.is_alive()

    def _begin(self, target: Callable[..., None], *args: socket.socket) -> None:
        self._threads.append(threading.Thread(target=target, args=args))
        self._threads[-1].start()

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            self._begin(self._answer, link)

    def _answer(self, link: socket.socket) -> None:
        try:
            link.settimeout(LONG)
            if self._tls is not None:
                link = self._tls.wrap_socket(link, server_side=True)
            with link, link.makefile("rb") as asked:
                while asked.readline():
                    length = int(http.client.parse_headers(asked)["Content-Length"] or 0)
                    if len(asked.read(length)) < length:
                        return
                    self.requests += 1
                    for data in self.answers.pop(0):
                        link.sendall(data)
        except OSError:
            # The client has closed it: that is what is waited for.
            pass


@pytest.fixture(
    params=[False, pytest.param(True, marks=pytest.mark.tier("ci"))], ids=["plain", "tls"]
)
def scripted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scripted]:
    made = Scripted(tmp_path, has_tls=request.param)
    yield made
    made.end()


def ends(ask: Callable[[], object]) -> None:
    """It is given up, long before the test is."""
    said: list[Exception] = []

    def asked() -> None:
        try:
            ask()
        except Exception as error:
            said.append(error)

    thread = threading.Thread(target=asked, daemon=True)
    thread.start()
    thread.join(LONG)
    assert [type(error) for error in said] == [Unavailable]


#: The beginning of an answer, and what comes of it from time to time.
DRIPPING = {
    "length": (OK + b"Content-Length: 1000000\r\n\r\n", b" "),
    "chunks": (OK + CHUNKED, chunk(b" ")),
    "one chunk": (OK + CHUNKED + b"100000\r\n", b" "),
    "until closed": (OK + b"\r\n", b" "),
    "conflict": (b"HTTP/1.1 409 Conflict\r\nContent-Length: 1000000\r\n\r\n", b" "),
    "error in chunks": (b"HTTP/1.1 503 Away\r\n" + CHUNKED, chunk(b" ")),
}


@pytest.mark.parametrize("how", DRIPPING)
def test_a_slow_response_ends_with_the_deadline(scripted: Scripted, how: str) -> None:
    """A socket's timeout is for each read, and each of these comes in time."""
    scripted.answers.append(scripted.drops(*DRIPPING[how]))
    ends(lambda: scripted.api.post("/x", {}, deadline_s=SHORT))


@pytest.mark.parametrize("first", [b"", OK, OK + b"Content-Length: 10\r\n\r\n", OK + CHUNKED])
def test_a_stalled_response_ends(scripted: Scripted, first: bytes) -> None:
    """With the deadline while its head is not there, else after twice that at most."""
    scripted.answers.append(scripted.stalls(first))
    ends(lambda: scripted.api.post("/x", {}, deadline_s=SHORT))


def test_a_write_is_not_sent_after_the_deadline(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A binding that was sent then could come after another replica had taken over."""
    # The time passes while the connection is made.
    times = itertools.chain((0.0, 0.0), itertools.repeat(LONG))
    monkeypatch.setattr(server, "monotonic", lambda: next(times))
    scripted.answers.append([sized(b"{}")])
    with pytest.raises(Unavailable, match="not complete after"):
        scripted.api.post("/x", {}, deadline_s=SHORT)
    monkeypatch.undo()
    assert scripted.requests == 0
    assert scripted.api.post("/x", {}, deadline_s=LONG) == b"{}"
    assert scripted.requests == 1
    # The error's traceback keeps the pool, and with it the second connection.
    gc.collect()


@pytest.mark.parametrize("how", ["one page", "pages"])
def test_a_slow_list_ends_with_the_deadline(scripted: Scripted, how: str) -> None:
    """Of its pages, too, each comes in time."""
    metadata = b'{"resourceVersion": "1", "continue": "x"}'
    page = b'{"kind": "PodList", "metadata": %s, "items": []}' % metadata
    if how == "one page":
        scripted.answers += [[sized(page)], scripted.drops(*DRIPPING["length"])]
    else:
        scripted.answers += [scripted.late(sized(page)) for _ in range(int(LONG / DROP))]
    ends(lambda: list_objects(scripted.api, "/x", objects.Pod, deadline_s=SHORT))


def test_an_expired_deadline_is_not_a_credentials_error(scripted: Scripted) -> None:
    for deadline_s in (0.0, -1.0):
        with pytest.raises(Unavailable):
            scripted.api.get("/x", deadline_s=deadline_s)
    assert scripted.connections == 0


def test_complete_responses_share_a_connection(scripted: Scripted) -> None:
    status = b'{"kind": "Status", "message": "not so", "code": 409}'
    scripted.answers += [
        [sized(b"a" * 300_000)],
        [sized(status, "409 Conflict")],
        [OK + CHUNKED, chunk(b"b"), chunk(b"c" * 70_000), chunk(b"")],
        [b"HTTP/1.1 404 Not Found\r\n" + CHUNKED + chunk(b"{}") + chunk(b"")],
        [sized(b"")],
    ]
    assert scripted.api.get("/x", deadline_s=LONG) == b"a" * 300_000
    with pytest.raises(Conflict, match="not so"):
        scripted.api.post("/x", {}, deadline_s=LONG)
    assert scripted.api.get("/x", deadline_s=LONG) == b"b" + b"c" * 70_000
    with pytest.raises(NotFound):
        scripted.api.get("/x", deadline_s=LONG)
    assert scripted.api.get("/x", deadline_s=LONG) == b""
    assert scripted.connections == 1


def test_the_body_of_an_error_is_read_up_to_a_limit(scripted: Scripted) -> None:
    sent = itertools.count()
    endless = (chunk(b" " * 10_000) for _ in sent)
    scripted.answers.append(itertools.chain([b"HTTP/1.1 409 Conflict\r\n" + CHUNKED], endless))
    with pytest.raises(Conflict):
        scripted.api.post("/x", {}, deadline_s=LONG)
    # The rest is not waited for, and no other request gets it.
    scripted.answers.append([sized(b"next")])
    assert scripted.api.get("/x", deadline_s=LONG) == b"next"
    assert scripted.connections == 2


def test_a_watch_outlives_its_silence_bound_while_events_come(scripted: Scripted) -> None:
    events = itertools.islice(scripted.drops(OK + CHUNKED, chunk(b'{"n": 1}\n')), 60)
    scripted.answers.append(itertools.chain(events, [chunk(b"")]))
    # 60 drops take longer than that.
    lines = list(scripted.api.stream("/x", {}, silence_s=2 * SHORT))
    assert lines == [b'{"n": 1}'] * 59


def test_a_watch_that_is_silent_is_lost(scripted: Scripted) -> None:
    def silent() -> Chunks:
        yield OK + CHUNKED + chunk(b'{"n": 1}\n{"n"')
        scripted._ending.wait(LONG)

    scripted.answers.append(silent())
    lines = iter(scripted.api.stream("/x", {}, silence_s=SHORT))
    assert next(lines) == b'{"n": 1}'
    with pytest.raises(Unavailable):
        next(lines)


def test_a_watch_that_does_not_begin_is_lost(scripted: Scripted) -> None:
    for answer in (scripted.stalls(OK), scripted.drops(*DRIPPING["conflict"])):
        scripted.answers.append(answer)
        with pytest.raises(Unavailable):
            scripted.api.stream("/x", {}, silence_s=SHORT)


def test_an_endless_event_is_abandoned(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_LINE_BYTES", 100_000)
    whole = b"w" * 99_999
    endless = (chunk(b"x" * 10_000) for _ in itertools.count())
    scripted.answers.append(itertools.chain([OK + CHUNKED, chunk(whole + b"\n")], endless))
    lines = iter(scripted.api.stream("/x", {}, silence_s=LONG))
    assert next(lines) == whole
    with pytest.raises(Rejected, match="more than 100000 bytes"):
        next(lines)


def test_events_are_split_at_line_ends_whatever_the_chunks(scripted: Scripted) -> None:
    text = b'{"a": 1}\n\n{"b": 2}\n{"c": 3}'
    for at in range(len(text) + 1):
        parts = [part for part in (text[:at], text[at:]) if part]
        scripted.answers.append([OK + CHUNKED, *map(chunk, parts), chunk(b"")])
        lines = list(scripted.api.stream("/x", {}, silence_s=LONG))
        assert lines == [b'{"a": 1}', b'{"b": 2}', b'{"c": 3}']


def test_a_watch_can_be_stopped_by_another_thread(scripted: Scripted) -> None:
    scripted.answers.append(scripted.drops(OK + CHUNKED, chunk(b'{"n": 1}\n')))
    stream = scripted.api.stream("/x", {}, silence_s=LONG)
    seen: list[bytes] = []
    ended = threading.Event()

    def watch() -> None:
        # A stream that was stopped ends as a lost one does.
        with contextlib.suppress(Unavailable):
            seen.extend(stream)
        ended.set()

    threading.Thread(target=watch, daemon=True).start()
    until(lambda: scripted.connections == 1, "it is watched")
    stream.stop()
    assert ended.wait(LONG)


def test_a_handshake_that_does_not_end_has_a_deadline(tmp_path: Path) -> None:
    scripted = Scripted(tmp_path, has_tls=True)
    listening = socket.create_server((HERE, 0))
    try:
        # It accepts, and says nothing.
        scripted.configuration.host = f"https://{HERE}:{listening.getsockname()[1]}"
        with pytest.raises(Unavailable):
            scripted.api.get("/x", deadline_s=SHORT)
    finally:
        listening.close()
        scripted.end()
