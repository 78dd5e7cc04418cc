"""Keeps the certificates as ``certificates.step`` wants them, there and in our listener.

All replicas do the same: read the Secret, compute what it should hold, write it if that is
something else. Two that write at once are told apart by the resource version; the loser reads
again. The configurations get the new bundle before anything signed by a new authority is shown,
because the Secret names the time at which an authority was announced, and that time has to pass.

The Secret is never made here: deploy/ has it, empty. RBAC cannot bound the names of what an account
makes, and who may make any Secret may make one that gets the token of another account.
"""

from __future__ import annotations

import base64
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from hami_py.errors import HamiError
from hami_py.kube import ApiServer
from hami_py.kube.errors import Conflict, NotFound
from hami_py.kube.server import STRATEGIC_PATCH
from hami_py.serving import Tls
from hami_py.webhook.certificates import Certificates, Lifetimes, bundle, is_whole, step

__all__ = ["Keeper", "Place"]

_log = logging.getLogger(__name__)

_FIELD = "certificates.json"
_RETRIES = 5
_UNREADY_S = 2.0
"""Without a certificate it is looked again so soon: no pod with a card can be made meanwhile."""


@dataclass(frozen=True)
class Place:
    """Where the certificates are kept, and who has to trust them.

    Attributes:
        namespace: of the Secret.
        secret: its name; it is there, and may be empty.
        mutating: the MutatingWebhookConfiguration, ``None`` where there is none.
        validating: the ValidatingWebhookConfiguration, ``None`` where there is none.
        names: DNS names and addresses that the API server reaches us by.
    """

    namespace: str
    secret: str
    mutating: str | None
    validating: str | None
    names: Sequence[str]


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Secret(msgspec.Struct):
    """All that is written back: labels and annotations are those of whoever applied it."""

    metadata: dict[str, object]
    type: str = "Opaque"
    data: dict[str, str] | None = None


class _Client(msgspec.Struct, rename="camel"):
    ca_bundle: str | None = None


class _Webhook(msgspec.Struct, rename="camel"):
    name: str
    client_config: _Client


class _Configuration(msgspec.Struct):
    metadata: _Meta
    webhooks: list[_Webhook] | None = None


class Keeper:
    """Keeps the certificates, in a thread of its own.

    Attributes:
        expires_at: when the certificate that is shown expires, in seconds since 1970; 0 before.
        failures: rounds that failed, so far.
    """

    def __init__(
        self,
        server: ApiServer,
        place: Place,
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
        self._place = place
        self._tls = tls
        self._lifetimes = lifetimes
        self._period_s = period_s
        self._deadline_s = deadline_s
        self._clock = clock
        self._shown = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="certificates", daemon=True)

    @property
    def is_ready(self) -> bool:
        """Whether a certificate is shown that the API server trusts."""
        return bool(self._shown)

    def start(self) -> None:
        """Does what is due, and goes on so; what failed is logged, and tried again."""
        self._try_round()
        if not self.is_ready:
            # Probes have to be answered until then. Nobody trusts this one, or needs to.
            made = step(Certificates(), self._place.names, self._clock(), self._lifetimes)
            if made.serving is not None:
                self._tls.show(made.serving.certificate, made.serving.key)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(2 * self._deadline_s)

    def round(self) -> None:
        """Does what is due.

        Raises:
            KubeError: not all of it could be done; ``NotFound``: the Secret is not there, or one of
                the configurations, and then the rest was done.
        """
        certificates = self._keep_secret()
        trusted = bundle(certificates)
        missing: NotFound | None = None
        for kind, name in (
            ("mutatingwebhookconfigurations", self._place.mutating),
            ("validatingwebhookconfigurations", self._place.validating),
        ):
            if name is not None:
                try:
                    self._keep_bundle(kind, name, trusted)
                except NotFound as error:
                    # By what is not there nobody asks us; by the other one the API server does.
                    missing = error
        serving = certificates.serving
        if serving is not None and serving.certificate != self._shown:
            self._tls.show(serving.certificate, serving.key)
            self._shown = serving.certificate
            self.expires_at = serving.expires_at
        if missing is not None:
            raise missing

    def _run(self) -> None:
        soon_s = min(_UNREADY_S, self._period_s)
        while not self._stopping.wait(self._period_s if self.is_ready else soon_s):
            self._try_round()

    def _try_round(self) -> None:
        try:
            self.round()
        except HamiError as error:
            # What is shown stays good for a third of its life.
            self.failures += 1
            _log.warning("certificates: %s", error)
        except Exception:
            self.failures += 1
            _log.exception("certificates")

    def _keep_secret(self) -> Certificates:
        what = f"secret {self._place.namespace}/{self._place.secret}"
        path = f"/api/v1/namespaces/{self._place.namespace}/secrets/{self._place.secret}"
        try:
            for _ in range(_RETRIES):
                answer = self._server.get(path, deadline_s=self._deadline_s)
                secret = msgspec.json.decode(answer, type=_Secret)
                held = _held(secret)
                wanted = step(held, self._place.names, self._clock(), self._lifetimes)
                if wanted is held:
                    return held
                try:
                    self._write_secret(path, secret, wanted)
                except Conflict:
                    # Another replica, most likely: then what it wrote is there.
                    continue
                return wanted
        except NotFound as error:
            fix = "make it, empty: kubectl apply -k deploy/"
            raise NotFound(what, "it is not there", fix, error.status) from error
        raise Conflict(what, "somebody else wrote it each time", "look who does")

    def _write_secret(self, path: str, before: _Secret, wanted: Certificates) -> None:
        serving = wanted.serving
        data = {_FIELD: msgspec.json.encode(wanted)}
        if serving is not None:
            # As `kubectl create secret tls` names them, for whoever looks.
            data |= {"tls.crt": serving.certificate.encode(), "ca.crt": bundle(wanted).encode()}
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": before.type,
            # With the version that was read.
            "metadata": before.metadata,
            "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
        }
        self._server.put(path, body, deadline_s=self._deadline_s)

    def _keep_bundle(self, kind: str, name: str, trusted: str) -> None:
        path = f"/apis/admissionregistration.k8s.io/v1/{kind}/{name}"
        wanted = base64.b64encode(trusted.encode()).decode()
        for _ in range(_RETRIES):
            found = msgspec.json.decode(
                self._server.get(path, deadline_s=self._deadline_s), type=_Configuration
            )
            # Merged by name.
            changes = [
                {"name": webhook.name, "clientConfig": {"caBundle": wanted}}
                for webhook in found.webhooks or []
                if webhook.client_config.ca_bundle != wanted
            ]
            if not changes:
                return
            version = {"resourceVersion": found.metadata.resource_version}
            patch = {"metadata": version, "webhooks": changes}
            try:
                self._server.patch(path, patch, STRATEGIC_PATCH, deadline_s=self._deadline_s)
            except Conflict:
                # Another replica, most likely with the same.
                continue
            return
        raise Conflict(path, "somebody else wrote it each time", "look who does")


def _held(secret: _Secret) -> Certificates:
    text = (secret.data or {}).get(_FIELD)
    if text is None:
        return Certificates()
    # Nobody can serve with what cannot be read, so a new beginning is no loss.
    try:
        held = msgspec.json.decode(base64.b64decode(text), type=Certificates)
    except (msgspec.DecodeError, ValueError) as error:
        _log.warning("the secret's %s cannot be read and is made anew: %s", _FIELD, error)
        return Certificates()
    if not is_whole(held):
        _log.warning("a certificate or a key in the secret's %s is none: all are made anew", _FIELD)
        return Certificates()
    return held
