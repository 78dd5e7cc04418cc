"""The keeper of certificates and a Secret that another program has created or written."""

from __future__ import annotations

import base64
import http.client
import json
import logging
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import yaml

from hami_py.errors import StateError
from hami_py.kube import ApiServer
from hami_py.kube.errors import Conflict, NotFound
from hami_py.serving import Listen, Tls
from hami_py.webhook.certificates import Certificates, Lifetimes, bundle, step
from hami_py.webhook.keeper import Keeper, WebhookObjects
from hami_py.webhook.service import Webhook, WebhookSettings
from support.launcher import until

Object = dict[str, Any]

NAMES = ["127.0.0.1"]
NOW = 2_000_000_000.0
PLACE = WebhookObjects("default", "secret", "mutating", None, NAMES)

RIGHTS = Path(__file__).parents[3] / "deploy" / "webhook" / "rights.yaml"


class Server:
    """A Secret, which may be away, and two configurations; and what was asked for."""

    def __init__(self, held: bytes | None) -> None:
        self.secret: Object | None = {"metadata": {"resourceVersion": "1"}}
        if held is not None:
            self.secret["data"] = {"certificates.json": base64.b64encode(held).decode()}
        self.configurations: dict[str, Object] = {
            f"{kind}webhookconfigurations": {
                "metadata": {"resourceVersion": "1"},
                "webhooks": [{"name": "pods", "clientConfig": {}}],
            }
            for kind in ("mutating", "validating")
        }
        self.asked: set[tuple[str, str, str]] = set()
        self._lock = threading.Lock()

    def get(self, path: str, *, deadline_s: float) -> bytes:
        kind = self._note("get", path)
        found = self.secret if kind == "secrets" else self.configurations[kind]
        if found is None or path.endswith("/missing"):
            raise NotFound(f"GET {path}", "404: not found", "apply deploy/ again", 404)
        return json.dumps(found).encode()

    def put(self, path: str, body: Object, *, deadline_s: float) -> bytes:
        assert self._note("update", path) == "secrets"
        with self._lock:
            if self.secret is None:
                raise NotFound(f"PUT {path}", "404: not found", "apply deploy/ again", 404)
            version = self.secret["metadata"]["resourceVersion"]
            if body["metadata"]["resourceVersion"] != version:
                raise Conflict(f"PUT {path}", "409: it has changed", "look again", 409)
            written = {**body["metadata"], "resourceVersion": str(int(version) + 1)}
            self.secret = {**body, "metadata": written}
        return b"{}"

    def patch(self, path: str, body: Object, kind: str, *, deadline_s: float) -> bytes:
        (hook,) = self.configurations[self._note("patch", path)]["webhooks"]
        (change,) = body["webhooks"]
        assert hook["name"] == change["name"]
        hook["clientConfig"] |= change.get("clientConfig", {})
        hook |= {name: value for name, value in change.items() if name != "clientConfig"}
        return b"{}"

    def _note(self, verb: str, path: str) -> str:
        kind, name = path.split("/")[-2:]
        self.asked.add((verb, kind, name))
        return kind

    def held(self) -> Certificates:
        assert self.secret is not None
        written = base64.b64decode(self.secret["data"]["certificates.json"])
        return msgspec.json.decode(written, type=Certificates)

    def rules(self) -> list[list[Object]]:
        """The rules of each configuration."""
        hooks = [hook for each in self.configurations.values() for hook in each["webhooks"]]
        return [hook.get("rules", []) for hook in hooks]

    def trusted(self) -> str:
        (hook,) = self.configurations["mutatingwebhookconfigurations"]["webhooks"]
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
def test_a_damaged_secret_is_recreated(damage: Any) -> None:
    """The webhook ended at each start, until an operator deleted the Secret."""
    damaged = damage(step(Certificates(), NAMES, NOW, Lifetimes()))
    server, tls = Server(msgspec.json.encode(damaged)), Tls()
    keeper = Keeper(cast(ApiServer, server), PLACE, tls, Lifetimes(), clock=lambda: NOW)
    keeper.round()
    held = server.held()
    assert held != damaged
    assert server.trusted() == bundle(held)
    assert ssl.create_default_context(cadata=server.trusted()).cert_store_stats()["x509_ca"] == 1
    # A valid Secret stays unchanged.
    keeper.round()
    assert server.held() == held


def test_the_other_configuration_is_updated_if_one_is_missing() -> None:
    """It served no new certificate then, and after a week the API server trusted none."""
    times = [NOW]
    server, tls = Server(b"{}"), Shown()
    place = WebhookObjects("default", "secret", "mutating", "missing", NAMES)
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


def test_two_replicas_that_fill_the_secret_at_once_serve_one_certificate() -> None:
    server, both_have_read = Server(None), threading.Barrier(2, timeout=60)

    class Together:
        """One replica's requests: its first write waits until the other has read, too."""

        def __init__(self) -> None:
            self.writes = 0

        def put(self, path: str, body: Object, *, deadline_s: float) -> bytes:
            self.writes += 1
            if self.writes == 1:
                both_have_read.wait()
            return server.put(path, body, deadline_s=deadline_s)

        get = staticmethod(server.get)
        patch = staticmethod(server.patch)

    shown, requests = [Shown(), Shown()], [Together(), Together()]
    keepers = [
        Keeper(cast(ApiServer, each), PLACE, tls, Lifetimes(), clock=lambda: NOW)
        for each, tls in zip(requests, shown, strict=True)
    ]
    rounds = [threading.Thread(target=keeper.round) for keeper in keepers]
    for each in rounds:
        each.start()
    for each in rounds:
        each.join()
    held = server.held()
    assert held.serving is not None
    assert [tls.certificate for tls in shown] == 2 * [held.serving.certificate]
    assert [each.writes for each in requests] == [1, 1]


def test_other_fields_of_the_secret_are_kept() -> None:
    """Labels and annotations went at each renewal, and `kubectl diff` told of them."""
    server = Server(None)
    theirs = {"name": "secret", "labels": {"a": "b"}, "annotations": {"c": "d"}}
    server.secret = {"metadata": {**theirs, "resourceVersion": "7"}, "type": "example.com/own"}
    Keeper(cast(ApiServer, server), PLACE, Tls(), Lifetimes(), clock=lambda: NOW).round()
    assert server.held().serving is not None
    assert server.secret["metadata"] == {**theirs, "resourceVersion": "8"}
    assert server.secret["type"] == "example.com/own"


def test_a_replica_with_a_certificate_continues_without_the_secret() -> None:
    server, tls = Server(None), Shown()
    keeper = Keeper(cast(ApiServer, server), PLACE, tls, Lifetimes(), clock=lambda: NOW)
    keeper.round()
    keeper.switch_on()
    keeper.round()
    before, trusted = tls.certificate, server.trusted()
    server.secret = None
    with pytest.raises(NotFound, match=r"secret default/secret: it does not exist; .*apply -k"):
        keeper.round()
    assert keeper.is_ready
    assert (tls.certificate, server.trusted()) == (before, trusted)
    # A recreated Secret is empty, as after a leaked key: the old data is not written back.
    server.secret = {"metadata": {"resourceVersion": "9"}}
    keeper.round()
    held = server.held()
    assert held.serving is not None
    assert tls.certificate == held.serving.certificate != before
    assert server.trusted() == bundle(held)


@pytest.fixture
def without_secret() -> Iterator[tuple[Server, Webhook]]:
    """A webhook that has begun where no Secret is."""
    server = Server(None)
    server.secret = None
    settings = WebhookSettings(PLACE, Listen("127.0.0.1", 0), period_s=0.01)
    webhook = Webhook(cast(ApiServer, server), settings)
    webhook.start()
    yield server, webhook
    webhook.stop()


def test_without_the_secret_it_is_live_and_not_ready_until_it_exists(
    without_secret: tuple[Server, Webhook], caplog: pytest.LogCaptureFixture
) -> None:
    """The kubelet's probes take any certificate; the API server takes the trusted one alone."""
    server, webhook = without_secret
    anyone = ssl.create_default_context()
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE

    def status(path: str, context: ssl.SSLContext) -> int:
        port = webhook.server.port
        link = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
        try:
            link.request("GET", path)
            return link.getresponse().status
        finally:
            link.close()

    assert (status("/healthz", anyone), status("/readyz", anyone)) == (200, 503)
    with caplog.at_level(logging.WARNING):
        until(lambda: bool(caplog.records), "nothing is logged")
    assert "secret default/secret: it does not exist" in caplog.text
    assert "kubectl apply -k deploy/" in caplog.text
    server.secret = {"metadata": {"resourceVersion": "1"}}
    until(lambda: webhook.keeper.is_ready, "it is not ready")
    trusting = ssl.create_default_context(cadata=server.trusted())
    assert (status("/healthz", trusting), status("/readyz", trusting)) == (200, 200)


def test_nothing_is_sent_to_a_webhook_that_does_not_answer() -> None:
    """With rules and no replica, no pod of the cluster could request a card."""
    server = Server(None)
    place = WebhookObjects("default", "secret", "mutating", "validating", NAMES)
    keeper = Keeper(cast(ApiServer, server), place, Tls(), Lifetimes(), clock=lambda: NOW)
    keeper.round()
    assert server.trusted() != ""
    assert server.rules() == [[], []]
    assert not keeper.is_ready
    keeper.switch_on()
    keeper.round()
    assert [[rule["resources"] for rule in each] for each in server.rules()] == [
        [["pods"]],
        [["pods"], ["pods/ephemeralcontainers"]],
    ]
    assert keeper.is_ready
    # What another client removes comes back.
    for each in server.configurations.values():
        del each["webhooks"][0]["rules"]
    keeper.round()
    assert all(server.rules())


def test_its_requests_need_exactly_the_rights_of_deploy() -> None:
    server, times = Server(None), [NOW]
    place = WebhookObjects("hami-system", *3 * ["hami-webhook"], NAMES)
    keeper = Keeper(cast(ApiServer, server), place, Tls(), Lifetimes(), clock=lambda: times[-1])
    for _ in range(100):
        keeper.round()
        times.append(times[-1] + 7 * 86_400)
    server.secret = None
    with pytest.raises(NotFound):
        keeper.round()
    rules = [
        rule for each in yaml.safe_load_all(RIGHTS.read_text()) for rule in each.get("rules", ())
    ]
    granted = {
        (verb, kind, name)
        for rule in rules
        for verb in rule["verbs"]
        for kind in rule["resources"]
        for name in rule["resourceNames"]
    }
    assert server.asked == granted


def issued(made: Certificates) -> dict[str, str]:
    """The data of a Secret as cert-manager writes it."""
    serving = made.serving
    assert serving is not None
    pem = {"tls.crt": serving.certificate, "tls.key": serving.key, "ca.crt": bundle(made)}
    return {name: base64.b64encode(text.encode()).decode() for name, text in pem.items()}


def test_the_certificate_of_another_issuer_is_served_and_followed() -> None:
    """The Secret is read and never written, and a renewed certificate replaces the old one."""
    server, tls = Server(None), Shown()
    objects = WebhookObjects("default", "theirs", "mutating", None, NAMES, is_ours=False)
    keeper = Keeper(cast(ApiServer, server), objects, tls, Lifetimes(), clock=lambda: NOW)
    for made in (step(Certificates(), NAMES, NOW, Lifetimes()) for _ in range(2)):
        assert server.secret is not None and made.serving is not None
        server.secret["data"] = issued(made)
        keeper.round()
        assert tls.certificate == made.serving.certificate
        assert server.trusted() == bundle(made)
    assert ("get", "secrets", "theirs") in server.asked
    assert not [verb for verb, kind, _ in server.asked if kind == "secrets" and verb != "get"]


@pytest.mark.parametrize("lacking", ["tls.crt", "tls.key", "ca.crt"])
def test_a_foreign_secret_without_a_part_is_reported(lacking: str) -> None:
    server = Server(None)
    objects = WebhookObjects("default", "theirs", "mutating", None, NAMES, is_ours=False)
    keeper = Keeper(cast(ApiServer, server), objects, Tls(), Lifetimes(), clock=lambda: NOW)
    data = issued(step(Certificates(), NAMES, NOW, Lifetimes()))
    assert server.secret is not None
    server.secret["data"] = {name: text for name, text in data.items() if name != lacking}
    with pytest.raises(StateError, match=lacking):
        keeper.round()
    # Another certificate's key.
    other = issued(step(Certificates(), NAMES, NOW, Lifetimes()))
    server.secret["data"] = data | {"tls.key": other["tls.key"]}
    with pytest.raises(StateError, match="not its key"):
        keeper.round()
