"""The socket of the service, with peers that behave badly."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from hami_py.errors import StateError
from hami_py.machine.listener import LARGEST, Listener, Peer
from support.users import User


@pytest.fixture
def asked() -> list[tuple[Peer, bytes]]:
    return []


@pytest.fixture
def path(tmp_path: Path, asked: list[tuple[Peer, bytes]]) -> Iterator[Path]:
    def answer(peer: Peer, request: bytes) -> bytes:
        asked.append((peer, request))
        return request[:10]

    listener = Listener(tmp_path / "socket", answer)
    listener.start()
    try:
        yield tmp_path / "socket"
    finally:
        listener.stop()
        assert not (tmp_path / "socket").exists()


def connect(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(5)
    connection.connect(str(path))
    return connection


def ask(path: Path, request: bytes) -> bytes:
    with connect(path) as connection:
        connection.send(request)
        return connection.recv(100)


def test_a_request_comes_with_its_peer(path: Path, asked: list[tuple[Peer, bytes]]) -> None:
    assert ask(path, b"hello") == b"hello"
    assert asked == [(Peer(os.getpid(), os.getuid()), b"hello")]
    assert path.stat().st_mode & 0o777 == 0o666


def test_a_request_that_is_too_long_is_not_taken_for_its_beginning(
    path: Path, asked: list[tuple[Peer, bytes]]
) -> None:
    ask(path, b"x" * (LARGEST + 100))
    assert len(asked[0][1]) == LARGEST + 1


def test_peers_that_say_nothing_or_go_stop_nobody(path: Path) -> None:
    for _ in range(24):
        silent = connect(path)
        with connect(path) as gone:
            gone.send(b"and gone")
        silent.close()
    assert ask(path, b"there") == b"there"


@pytest.mark.skipif(os.getuid() != 0, reason="needs two users")
def test_a_user_has_few_connections_and_not_for_long(path: Path, tmp_path: Path) -> None:
    for folder in list(path.parents)[:-2]:
        folder.chmod(0o755)

    def hold() -> tuple[bytes, bytes]:
        held = [connect(path) for _ in range(8)]
        with connect(path) as one_more:
            return one_more.recv(10), held[0].recv(10)

    assert User(65534, tmp_path / "home").call(hold) == (b"", b"")
    assert ask(path, b"again") == b"again"


@pytest.mark.skipif(os.getuid() != 0, reason="needs two users")
def test_numbers_that_are_no_users_have_few_connections_together(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user has 65,536 subordinate numbers."""
    monkeypatch.setattr("hami_py.machine.listener._PATIENCE_S", 60.0)
    for folder in list(path.parents)[:-2]:
        folder.chmod(0o755)

    def tries() -> bytes:
        with connect(path) as one_more, suppress(ConnectionError):
            one_more.send(b"hello")
            return one_more.recv(10)
        return b""

    first, second = User(200_001, tmp_path / "two"), User(200_002, tmp_path / "three")

    @contextmanager
    def held() -> Iterator[None]:
        connections = [connect(path) for _ in range(8)]
        yield
        for each in connections:
            each.close()

    with first.holding(held()):
        assert second.call(tries) == b""
    assert ask(path, b"again") == b"again"


def test_a_socket_of_an_earlier_service_is_replaced(tmp_path: Path) -> None:
    left = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    left.bind(str(tmp_path / "socket"))
    left.close()
    listener = Listener(tmp_path / "socket", lambda _, request: request)
    listener.start()
    assert ask(tmp_path / "socket", b"hello") == b"hello"
    listener.stop()
    with pytest.raises(StateError, match="check its directory"):
        Listener(tmp_path / "missing" / "socket", lambda _, request: request).start()
