"""The webhook as a service: certificates, routes and listener."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from starlette.routing import Route, Router

from hami_py.kube import ApiServer
from hami_py.model import pods
from hami_py.serving import Bodies, Listen, Server, Tls, json_route, page
from hami_py.webhook.certificates import Lifetimes
from hami_py.webhook.keeper import Keeper, WebhookObjects
from hami_py.webhook.metrics import exposition
from hami_py.webhook.review import Review, Reviewer, read_review

_REVIEW_BYTES = 4 << 20
"""The largest review. An object has up to 1.5 MiB in etcd, and a review has it once or twice."""

_LINGER_S = 3.0
"""The API server still uses the connections that it has kept to a replica that is no endpoint any
more. Together with the preStop hook (deploy/) and its other work, the replica ends well within the
30 s that the kubelet grants."""


@dataclass(frozen=True)
class WebhookSettings:
    """How the webhook runs.

    Attributes:
        listen: where it listens; all addresses, because the API server may run anywhere.
        runtime_class: set on pods that request a card and name none; ``None``: not set.
        period_s: how often the certificates are checked.
        body_bytes: the budget for all reviews that are being read. With the 512 connections of
            ``listen``, a review of up to 64 KiB, several times the usual size, is never dropped,
            and the budget fits into the memory limit in deploy/.
    """

    objects: WebhookObjects
    listen: Listen = field(default_factory=lambda: Listen("0.0.0.0", 9443))  # noqa: S104
    lifetimes: Lifetimes = field(default_factory=Lifetimes)
    pods: pods.PodSettings = field(default_factory=pods.PodSettings)
    runtime_class: str | None = None
    period_s: float = 10.0
    body_bytes: int = 32 << 20


class Webhook:
    """One replica. Replicas do not communicate with each other."""

    def __init__(self, server: ApiServer, settings: WebhookSettings) -> None:
        tls = Tls()
        self.reviewer = Reviewer(settings.pods, settings.runtime_class)
        self.keeper = Keeper(
            server, settings.objects, tls, settings.lifetimes, period_s=settings.period_s
        )
        bodies = Bodies(settings.body_bytes)
        routes = self._routes(bodies)
        self.server = Server(Router(routes), settings.listen, tls=tls, linger_s=_LINGER_S)

    def start(self) -> None:
        """Start the listener, and then add the rules.

        Without a certificate, only the kubelet's probes are answered.
        """
        self.keeper.start()
        self.server.start()
        self.keeper.switch_on()

    def stop(self) -> None:
        """Answers the requests that have arrived, and ends."""
        self.server.stop()
        self.keeper.stop()

    def _routes(self, bodies: Bodies) -> list[Route]:
        def review(path: str, answer: Callable[[Review], object]) -> Route:
            return json_route(path, read_review, answer, most_bytes=_REVIEW_BYTES, bodies=bodies)

        def ready() -> tuple[int, str]:
            why = "it has no certificate, or its rules are not on yet; the log has the reason\n"
            return (200, "ready\n") if self.keeper.is_ready else (503, why)

        return [
            review("/mutate", self.reviewer.mutate),
            review("/validate", self.reviewer.validate),
            review("/mutate-others", partial(self.reviewer.mutate, owner="others")),
            review("/validate-others", partial(self.reviewer.validate, owner="others")),
            page("/healthz", lambda: (200, "alive\n")),
            page("/readyz", ready),
            page("/metrics", lambda: (200, exposition(self.reviewer, self.keeper, bodies))),
        ]
