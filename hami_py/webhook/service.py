"""The webhook as one thing that runs: certificates, listener, routes."""

from __future__ import annotations

from dataclasses import dataclass, field

from hami_py.kube import ApiServer
from hami_py.model import pods
from hami_py.serving import Bodies, Listen, Server, Tls
from hami_py.webhook.app import make_app
from hami_py.webhook.certificates import Lifetimes
from hami_py.webhook.keeper import Keeper, Place
from hami_py.webhook.metrics import exposition
from hami_py.webhook.review import Reviewer

__all__ = ["Webhook", "WebhookSettings"]

_LINGER_S = 3.0
"""The API server goes on asking a replica that is no endpoint any more, over connections that it
keeps. After the hook before it (deploy/), and with the rest of its work, a replica still ends well
within the 30 s that the kubelet gives it."""


@dataclass(frozen=True)
class WebhookSettings:
    """How the webhook runs.

    Attributes:
        place: where its certificates are kept, and who trusts them.
        listen: where it listens; all addresses, because the API server comes from anywhere.
        lifetimes: of its certificates.
        pods: how pods are read.
        runtime_class: given to pods that ask for a card and name none; ``None`` leaves that alone.
        period_s: how often the certificates are looked at.
        body_bytes: of all reviews that are being read at once. With the 512 connections of
            ``listen``, one of 64 KiB, several times an ordinary one, is never turned away, and all
            of it is less than the memory that deploy/ gives.
    """

    place: Place
    listen: Listen = field(default_factory=lambda: Listen("0.0.0.0", 9443))  # noqa: S104
    lifetimes: Lifetimes = field(default_factory=Lifetimes)
    pods: pods.PodSettings = field(default_factory=pods.PodSettings)
    runtime_class: str | None = None
    period_s: float = 10.0
    body_bytes: int = 32 << 20


class Webhook:
    """One replica. Replicas need not know of each other.

    Attributes:
        reviewer: who judges.
        keeper: who keeps the certificates.
        server: who listens.
    """

    def __init__(self, server: ApiServer, settings: WebhookSettings) -> None:
        tls = Tls()
        self.reviewer = Reviewer(settings.pods, settings.runtime_class)
        self.keeper = Keeper(
            server, settings.place, tls, settings.lifetimes, period_s=settings.period_s
        )
        bodies = Bodies(settings.body_bytes)
        app = make_app(
            self.reviewer,
            bodies,
            lambda: self.keeper.is_ready,
            lambda: exposition(self.reviewer, self.keeper, bodies),
        )
        self.server = Server(app, settings.listen, tls=tls, linger_s=_LINGER_S)

    def start(self) -> None:
        """Begins to answer; where there is no certificate yet, the probes alone can be asked."""
        self.keeper.start()
        self.server.start()

    def stop(self) -> None:
        """Answers what has come, and ends."""
        self.server.stop()
        self.keeper.stop()
