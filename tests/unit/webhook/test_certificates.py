"""Certificates are replaced without a moment at which a handshake fails: tried with real TLS."""

import ssl
from datetime import datetime, timezone

import msgspec
import pytest
from cryptography import x509

from hami_py.webhook.certificates import Certificates, Lifetimes, bundle, is_whole, step

NAMES = ["hami-webhook.hami-system.svc", "127.0.0.1"]
LIVES = Lifetimes(authority_s=300.0, serving_s=60.0, overlap_s=10.0)
START = 2_000_000_000.0


def handshake(shown: Certificates, trusted: str, name: str = NAMES[0]) -> None:
    """A TLS handshake in memory; raises ``ssl.SSLError`` where it fails."""
    assert shown.serving is not None
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(server, shown)
    client = ssl.create_default_context(cadata=trusted)
    # The certificates are of the year 2033, which the tests do not wait for.
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    client.verify_flags |= _NO_CHECK_TIME
    ends = [ssl.MemoryBIO() for _ in range(2)]
    sides = [
        client.wrap_bio(ends[0], ends[1], server_hostname=name),
        server.wrap_bio(ends[1], ends[0], server_side=True),
    ]
    done = [False, False]
    for _ in range(10):
        for at, side in enumerate(sides):
            if not done[at]:
                try:
                    side.do_handshake()
                    done[at] = True
                except ssl.SSLWantReadError:
                    pass
    assert all(done)


_NO_CHECK_TIME = ssl.VerifyFlags(0x200000)


def _load(context: ssl.SSLContext, shown: Certificates) -> None:
    import tempfile
    from pathlib import Path

    assert shown.serving is not None
    with tempfile.TemporaryDirectory() as folder:
        pem = Path(folder) / "both.pem"
        pem.write_text(shown.serving.certificate + shown.serving.key)
        context.load_cert_chain(pem)


def test_the_first_certificates_serve_at_once():
    made = step(Certificates(), NAMES, START, LIVES)
    for name in NAMES:
        handshake(made, bundle(made), name)
    assert step(made, NAMES, START + 1, LIVES) is made


def test_a_reader_that_lags_behind_by_the_overlap_never_fails():
    """Over many lives, with either side as it was up to the overlap ago."""
    history = []
    now, made = START, Certificates()
    for _ in range(400):
        made = step(made, NAMES, now, LIVES)
        history.append((now, made))
        now += 2.5
    assert len({state.serving.certificate for _, state in history}) > 10
    assert len({a.certificate for _, state in history for a in state.authorities}) > 4
    tried = set()
    for at, state in history:
        for then, before in history:
            if 0 <= at - then < LIVES.overlap_s:
                # A replica that still shows the old one, and an API server that still trusts the
                # old.
                for shown, trusted in ((before, state), (state, before)):
                    pair = (shown.serving.certificate, bundle(trusted))
                    if pair not in tried:
                        tried.add(pair)
                        handshake(shown, bundle(trusted))
        assert all(now < a.expires_at for now, a in [(at, a) for a in state.authorities])
        assert at < state.serving.expires_at
    assert all(len(state.authorities) <= 2 for _, state in history)


def test_a_changed_name_causes_a_new_certificate_of_the_same_authority():
    made = step(Certificates(), NAMES, START, LIVES)
    again = step(made, [*NAMES, "10.96.0.7"], START + 1, LIVES)
    assert bundle(again) == bundle(made)
    handshake(again, bundle(made), "10.96.0.7")


def test_after_a_long_downtime_everything_is_new():
    made = step(Certificates(), NAMES, START, LIVES)
    again = step(made, NAMES, START + 10_000, LIVES)
    assert bundle(again) != bundle(made)
    handshake(again, bundle(again))


def valid_at(certificates: Certificates, now: float) -> bool:
    """Whether a verifier with the right clock takes all of them."""
    shown = certificates.serving
    pems = [a.certificate for a in certificates.authorities] + [shown.certificate if shown else ""]
    parsed = [x509.load_pem_x509_certificate(pem.encode()) for pem in pems]
    at = datetime.fromtimestamp(now, timezone.utc)
    return all(one.not_valid_before_utc <= at < one.not_valid_after_utc for one in parsed)


@pytest.mark.parametrize("ahead_s", [310.0, 450.0, 3_000.0, 10_000.0])
def test_a_clock_that_was_ahead(ahead_s: float):
    """Its certificate is not valid yet, and no pod could be created until it is."""
    made = step(Certificates(), NAMES, START, LIVES)
    ahead = step(made, NAMES, START + ahead_s, LIVES)
    assert not valid_at(ahead, START + 2)
    again = step(ahead, NAMES, START + 2, LIVES)
    assert valid_at(again, START + 2)
    handshake(again, bundle(again))
    assert step(again, NAMES, START + 3, LIVES) is again


def test_a_clock_that_is_a_little_ahead_changes_nothing():
    ahead = step(Certificates(), NAMES, START + 290, LIVES)
    assert step(ahead, NAMES, START, LIVES) is ahead
    assert valid_at(ahead, START)


def test_an_invalid_certificate_or_key_is_detected():
    made, other = (step(Certificates(), NAMES, START, LIVES) for _ in range(2))
    assert is_whole(made)
    assert is_whole(Certificates())
    (authority,), serving, theirs = made.authorities, made.serving, other.serving
    assert serving is not None
    assert theirs is not None
    for broken in ("", "x", serving.key[:80], serving.certificate, theirs.key):
        pair = msgspec.structs.replace(serving, key=broken)
        assert not is_whole(Certificates((authority,), pair))
        first = msgspec.structs.replace(authority, key=broken)
        assert not is_whole(Certificates((first,), serving))
    for broken in ("", "x", serving.certificate[:80], serving.key, theirs.certificate):
        pair = msgspec.structs.replace(serving, certificate=broken)
        assert not is_whole(Certificates((authority,), pair))
