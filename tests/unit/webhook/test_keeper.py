"""What the keeper of certificates makes of a Secret that somebody else has written."""

from __future__ import annotations

import base64
import json
import ssl
from typing import Any, cast

import msgspec
import pytest

from hami_py.kube import ApiServer
from hami_py.kube.errors import NotFound
from hami_py.serving import Tls
from hami_py.webhook.certificates import Certificates, Lifetimes, bundle, step
from hami_py.webhook.keeper import Keeper, Place

Object = dict[str, Any]

NAMES = ["127.0.0.1"]
NOW = 2_000_000_000.0
PLACE = Place("default", "secret", "mutating", None, NAMES)


class Server:
    """A Secret and a configuration."""

    def __init__(self, held: bytes) -> None:
        data = {"certificates.json": base64.b64encode(held).decode()}
        self.secret: Object = {"metadata": {"resourceVersion": "1"}, "data": data}
        hooks = [{"name": "pods", "clientConfig": {}}]
        self.configuration: Object = {"metadata": {"resourceVersion": "1"}, "webhooks": hooks}

    def get(self, path: str, *, deadline_s: float) -> bytes:
        if path.endswith("/missing"):
            raise NotFound(f"GET {path}", "404: not found", "apply deploy/ again", 404)
        is_secret = path.endswith("/secrets/secret")
        return json.dumps(self.secret if is_secret else self.configuration).encode()

    def put(self, path: str, body: Object, *, deadline_s: float) -> bytes:
        self.secret = body
        return b"{}"

    def patch(self, path: str, body: Object, kind: str, *, deadline_s: float) -> bytes:
        self.configuration["webhooks"] = body["webhooks"]
        return b"{}"

    def held(self) -> Certificates:
        written = base64.b64decode(self.secret["data"]["certificates.json"])
        return msgspec.json.decode(written, type=Certificates)

    def trusted(self) -> str:
        (hook,) = self.configuration["webhooks"]
        return base64.b64decode(hook["clientConfig"]["caBundle"]).decode()


class Shown(Tls):
    """Remembers what it shows."""

    certificate = ""

    def show(self, certificate: str, key: str) -> None:
        super().show(certificate, key)
        self.certificate = certificate


def cut(made: Certificates) -> Certificates:
    """By hand: the last line of the key is missing."""
    serving = made.serving
    assert serving is not None
    lines = serving.key.splitlines(keepends=True)
    return msgspec.structs.replace(
        made, serving=msgspec.structs.replace(serving, key="".join(lines[:-1]))
    )


def of_another(made: Certificates) -> Certificates:
    """The authority's key is another's."""
    (mine,), (theirs,) = made.authorities, step(Certificates(), NAMES, NOW, Lifetimes()).authorities
    mixed = msgspec.structs.replace(mine, key=theirs.key)
    return msgspec.structs.replace(made, authorities=(mixed,))


@pytest.mark.parametrize("damage", [cut, of_another])
def test_a_secret_that_was_damaged_is_made_anew(damage: Any) -> None:
    """The webhook ended at its start, each time, until somebody deleted the Secret."""
    damaged = damage(step(Certificates(), NAMES, NOW, Lifetimes()))
    server, tls = Server(msgspec.json.encode(damaged)), Tls()
    keeper = Keeper(cast(ApiServer, server), PLACE, tls, Lifetimes(), clock=lambda: NOW)
    keeper.round()
    held = server.held()
    assert held != damaged
    assert server.trusted() == bundle(held)
    assert ssl.create_default_context(cadata=server.trusted()).cert_store_stats()["x509_ca"] == 1
    # What is whole stays.
    keeper.round()
    assert server.held() == held


def test_the_other_configuration_goes_on_where_one_is_missing() -> None:
    """Nothing new was shown then, and after a week the API server trusted nobody."""
    times = [NOW]
    server, tls = Server(b"{}"), Shown()
    place = Place("default", "secret", "mutating", "missing", NAMES)
    keeper = Keeper(cast(ApiServer, server), place, tls, Lifetimes(), clock=lambda: times[-1])
    for later_s in (0, 6 * 86_400):
        times.append(NOW + later_s)
        with pytest.raises(NotFound, match="missing"):
            keeper.round()
        held = server.held()
        assert held.serving is not None
        assert tls.certificate == held.serving.certificate
        assert server.trusted() == bundle(held)
    assert keeper.expires_at > NOW + 7 * 86_400
