"""A listener whose certificate changes: new connections get a whole one, open connections stay."""

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator

import pytest
from starlette.routing import Router

from hami_py.serving import Listen, Server, Tls, page
from hami_py.webhook.certificates import Certificates, Lifetimes, Serving, bundle, step

NAMES = ["127.0.0.1"]
HANDSHAKES = 400


def made() -> tuple[Serving, str]:
    """A certificate, and who signed it."""
    certificates = step(Certificates(), NAMES, time.time(), Lifetimes())
    assert certificates.serving is not None
    return certificates.serving, bundle(certificates)


@pytest.fixture
def listener() -> Iterator[tuple[Tls, int]]:
    tls = Tls()
    app = Router([page("/", lambda: (200, "here\n"))])
    server = Server(app, Listen(), tls=tls)
    server.start()
    yield tls, server.port
    server.stop()


def test_no_handshake_fails_while_certificates_change(listener: tuple[Tls, int]) -> None:
    """The context of a listener was changed in place once: now and then it had no key."""
    tls, port = listener
    one, other = made(), made()
    tls.show(one[0].certificate, one[0].key)
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            for serving, _ in (other, one):
                tls.show(serving.certificate, serving.key)

    changing = threading.Thread(target=change)
    changing.start()
    seen = set()
    client = ssl.create_default_context(cadata=one[1] + other[1])
    try:
        for number in range(HANDSHAKES):
            with (
                socket.create_connection(("127.0.0.1", port), timeout=30) as plain,
                client.wrap_socket(plain, server_hostname="127.0.0.1") as link,
            ):
                seen.add(link.getpeercert(binary_form=True))
                assert link.version() == "TLSv1.3", number
    finally:
        stop.set()
        changing.join()
    assert len(seen) == 2


def test_a_connection_outlives_the_certificate_of_its_handshake(
    listener: tuple[Tls, int],
) -> None:
    tls, port = listener
    one, other = made(), made()
    tls.show(one[0].certificate, one[0].key)
    trusting = ssl.create_default_context(cadata=one[1])
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=trusting)
    for _ in range(2):
        connection.request("GET", "/")
        assert connection.getresponse().read() == b"here\n"
        tls.show(other[0].certificate, other[0].key)
    connection.close()
    with pytest.raises(ssl.SSLCertVerificationError):
        connection.request("GET", "/")
    connection.close()
    newer = ssl.create_default_context(cadata=other[1])
    again = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=newer)
    again.request("GET", "/")
    assert again.getresponse().status == 200
    again.close()


def test_kept_connections_are_asked_to_close_before_the_listener_ends() -> None:
    """A connection that was cut between two requests failed the second, if that was on its way."""
    server = Server(Router([page("/", lambda: (200, "here\n"))]), Listen(), linger_s=60)
    server.start()
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    link.request("GET", "/")
    first = link.getresponse()
    assert (first.read(), first.will_close) == (b"here\n", False)
    kept = link.sock
    ending = threading.Thread(target=server.stop)
    ending.start()
    deadline = time.monotonic() + 30
    while not first.will_close:
        assert time.monotonic() < deadline
        assert link.sock is kept
        link.request("GET", "/")
        first = link.getresponse()
        assert first.read() == b"here\n"
    # The last connection is closed, so there is nothing to wait for.
    ending.join(30)
    assert not ending.is_alive()
