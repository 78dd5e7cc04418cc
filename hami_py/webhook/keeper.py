"""Keeps the certificates that ``certificates.step`` computes, in the cluster and in the listener.

It also keeps the rules of the webhook configurations, which say what the API server has reviewed.
deploy/ has none: with ``failurePolicy: Fail``, rules without a replica would stop every pod that
requests a card, for example as long as there is no image. So a replica adds them once it answers.
Nothing removes them, also if no replica answers any more.

All replicas do the same: read the Secret, compute its next content, and write it if it differs. If
two replicas write at once, the resource version rejects one of them, and that one reads again. The
webhook configurations get a new authority before the listener uses a certificate signed by it: the
Secret has the time at which an authority was announced, and it signs only some time later.

The webhook never creates the Secret: deploy/ has it, empty. RBAC cannot restrict the names of
created objects, and an account that may create any Secret can create one that receives the token of
another account.
"""

from __future__ import annotations

import base64
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from hami_py.errors import HamiError, StateError
from hami_py.kube import ApiServer
from hami_py.kube.errors import Conflict, NotFound
from hami_py.kube.server import STRATEGIC_PATCH
from hami_py.serving import Tls
from hami_py.webhook.certificates import (
    Certificates,
    Lifetimes,
    Serving,
    bundle,
    is_whole,
    of_another_issuer,
    step,
)

_log = logging.getLogger(__name__)

_FIELD = "certificates.json"
_RETRIES = 5
_CONTENDED = (
    f"another client wrote it between reading and writing, {_RETRIES} times",
    "find the client with `kubectl get --show-managed-fields`, and stop it",
)
_UNREADY_S = 2.0
"""The pause without a certificate: meanwhile no pod with a card can be created, or none is
reviewed."""


def _rule(operation: str, resource: str) -> dict[str, object]:
    """A rule with all of its fields, as the API server returns it."""
    return {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": [operation],
        "resources": [resource],
        "scope": "Namespaced",
    }


_RULES = {
    "mutatingwebhookconfigurations": [_rule("CREATE", "pods")],
    "validatingwebhookconfigurations": [
        _rule("CREATE", "pods"),
        # `kubectl debug` adds a container to an existing pod.
        _rule("UPDATE", "pods/ephemeralcontainers"),
    ],
}


@dataclass(frozen=True)
class WebhookObjects:
    """The objects in the cluster that have the certificates and the rules.

    Attributes:
        secret: the Secret's name; it exists and may be empty.
        is_ours: whether the webhook writes the Secret. If not, something else, such as
            cert-manager, keeps ``tls.crt``, ``tls.key`` and ``ca.crt`` there.
        mutating: the MutatingWebhookConfiguration; ``None``: there is none.
        names: the DNS names and addresses at which the API server reaches the webhook.
    """

    namespace: str
    secret: str
    mutating: str | None
    validating: str | None
    names: Sequence[str]
    is_ours: bool = True


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Secret(msgspec.Struct):
    """The fields to write back: labels and annotations stay as they were applied."""

    metadata: dict[str, object]
    type: str = "Opaque"
    data: dict[str, str] | None = None


class _Client(msgspec.Struct, rename="camel"):
    ca_bundle: str | None = None


class _Webhook(msgspec.Struct, rename="camel"):
    name: str
    client_config: _Client
    rules: list[dict[str, object]] | None = None


class _Configuration(msgspec.Struct):
    metadata: _Meta
    webhooks: list[_Webhook] | None = None


class Keeper:
    """Keeps the certificates and the rules, in its own thread.

    Attributes:
        expires_at: when the listener's certificate expires, in seconds since 1970; 0: it has none.
    """

    def __init__(
        self,
        server: ApiServer,
        objects: WebhookObjects,
        tls: Tls,
        lifetimes: Lifetimes,
        *,
        period_s: float = 10.0,
        deadline_s: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.expires_at = 0.0
        self.failures = 0
        self._server = server
        self._objects = objects
        self._what = f"secret {objects.namespace}/{objects.secret}"
        self._secret_path = f"/api/v1/namespaces/{objects.namespace}/secrets/{objects.secret}"
        self._tls = tls
        self._lifetimes = lifetimes
        self._period_s = period_s
        self._deadline_s = deadline_s
        self._clock = clock
        self._shown = ""
        self._is_answering = False
        self._has_rules = False
        self._due = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="certificates", daemon=True)

    @property
    def is_ready(self) -> bool:
        """Whether the API server sends reviews, and trusts the listener's certificate."""
        return bool(self._shown) and self._has_rules

    def start(self) -> None:
        """Runs a round now, and then one per period; failures are logged and tried again."""
        self._try_round()
        if not self._shown:
            # The kubelet's probes must be answered until then. They need not trust this one.
            made = step(Certificates(), self._objects.names, self._clock(), self._lifetimes)
            if made.serving is not None:
                self._tls.show(made.serving.certificate, made.serving.key)
        self._thread.start()

    def switch_on(self) -> None:
        """Adds the rules to the configurations, now that the listener answers."""
        self._is_answering = True
        self._due.set()

    def stop(self) -> None:
        """Ends the thread."""
        self._stopping.set()
        self._due.set()
        if self._thread.is_alive():
            self._thread.join(2 * self._deadline_s)

    def round(self) -> None:
        """Does what is due.

        Raises:
            StateError: the Secret of another program has no valid certificate.
            KubeError: part of it failed. ``NotFound``: the Secret is missing, or a configuration is
                missing and everything else was done.
        """
        if self._objects.is_ours:
            certificates = self._keep_secret()
            trusted, serving = bundle(certificates), certificates.serving
        else:
            serving = self._read_secret()
            trusted = serving.authority
        missing: NotFound | None = None
        answers = self._is_answering and bool(self._shown)
        for kind, name in (
            ("mutatingwebhookconfigurations", self._objects.mutating),
            ("validatingwebhookconfigurations", self._objects.validating),
        ):
            rules = _RULES[kind] if answers else None
            if name is not None:
                try:
                    self._keep_configuration(kind, name, trusted, rules)
                except NotFound as error:
                    # The API server may still use the other configuration.
                    missing = error
        if serving is not None and serving.certificate != self._shown:
            self._tls.show(serving.certificate, serving.key)
            self._shown = serving.certificate
            self.expires_at = serving.expires_at
        self._has_rules = answers
        if missing is not None:
            raise missing

    def _run(self) -> None:
        soon_s = min(_UNREADY_S, self._period_s)
        while not self._stopping.is_set():
            self._due.wait(self._period_s if self.is_ready else soon_s)
            self._due.clear()
            if not self._stopping.is_set():
                self._try_round()

    def _try_round(self) -> None:
        try:
            self.round()
        except HamiError as error:
            # The current certificate is valid for another third of its life.
            self.failures += 1
            _log.warning("certificates: %s", error)
        except Exception:
            self.failures += 1
            _log.exception("certificates")

    def _secret(self) -> _Secret:
        answer = self._server.get(self._secret_path, deadline_s=self._deadline_s)
        return msgspec.json.decode(answer, type=_Secret)

    def _keep_secret(self) -> Certificates:
        try:
            for _ in range(_RETRIES):
                secret = self._secret()
                held = _held(secret)
                wanted = step(held, self._objects.names, self._clock(), self._lifetimes)
                if wanted is held:
                    return held
                try:
                    self._write_secret(secret, wanted)
                except Conflict:
                    # Most likely another replica has written the same.
                    continue
                return wanted
        except NotFound as error:
            fix = "create it: helm upgrade, or kubectl apply -k deploy/"
            raise NotFound(self._what, "it does not exist", fix, error.status) from error
        raise Conflict(self._what, *_CONTENDED)

    def _read_secret(self) -> Serving:
        data = self._secret().data or {}
        try:
            certificate, key, authority = (
                base64.b64decode(data[name]).decode() for name in ("tls.crt", "tls.key", "ca.crt")
            )
            return of_another_issuer(certificate, key, authority)
        except KeyError as error:
            raise StateError(self._what, f"it has no {error.args[0]}", "add it") from error
        except ValueError as error:
            raise StateError(self._what, str(error), "write PEM of a matching pair") from error

    def _write_secret(self, before: _Secret, wanted: Certificates) -> None:
        serving = wanted.serving
        data = {_FIELD: msgspec.json.encode(wanted)}
        if serving is not None:
            # The names that `kubectl create secret tls` uses, for people who read it.
            data |= {"tls.crt": serving.certificate.encode(), "ca.crt": bundle(wanted).encode()}
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": before.type,
            # It includes the resource version that was read.
            "metadata": before.metadata,
            "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
        }
        self._server.put(self._secret_path, body, deadline_s=self._deadline_s)

    def _keep_configuration(
        self, kind: str, name: str, trusted: str, rules: list[dict[str, object]] | None
    ) -> None:
        path = f"/apis/admissionregistration.k8s.io/v1/{kind}/{name}"
        wanted = base64.b64encode(trusted.encode()).decode()
        for _ in range(_RETRIES):
            answer = self._server.get(path, deadline_s=self._deadline_s)
            found = msgspec.json.decode(answer, type=_Configuration)
            # The API server merges this list by name.
            changes: list[dict[str, object]] = []
            for webhook in found.webhooks or []:
                change: dict[str, object] = {}
                if webhook.client_config.ca_bundle != wanted:
                    change["clientConfig"] = {"caBundle": wanted}
                if rules is not None and webhook.rules != rules:
                    change["rules"] = rules
                if change:
                    changes.append({"name": webhook.name, **change})
            if not changes:
                return
            version = {"resourceVersion": found.metadata.resource_version}
            patch = {"metadata": version, "webhooks": changes}
            try:
                self._server.patch(path, patch, STRATEGIC_PATCH, deadline_s=self._deadline_s)
            except Conflict:
                # Most likely another replica has written the same.
                continue
            return
        raise Conflict(path, *_CONTENDED)


def _held(secret: _Secret) -> Certificates:
    text = (secret.data or {}).get(_FIELD)
    if text is None:
        return Certificates()
    # Invalid certificates are of no use, so nothing is lost by replacing them.
    try:
        held = msgspec.json.decode(base64.b64decode(text), type=Certificates)
    except (msgspec.DecodeError, ValueError) as error:
        _log.warning("the secret's %s is invalid and is replaced: %s", _FIELD, error)
        return Certificates()
    if not is_whole(held):
        _log.warning("the secret's %s has an invalid certificate or key: all are replaced", _FIELD)
        return Certificates()
    return held
