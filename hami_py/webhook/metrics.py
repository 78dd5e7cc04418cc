"""What the webhook tells Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from hami_py.serving import Bodies
from hami_py.webhook.keeper import Keeper
from hami_py.webhook.review import Reviewer

__all__ = ["exposition"]


def exposition(reviewer: Reviewer, keeper: Keeper, bodies: Bodies) -> str:
    """The metrics, in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_Told(reviewer, keeper, bodies))
    return generate_latest(registry).decode()


class _Told(Collector):
    """Reads what others count: nothing is counted twice."""

    def __init__(self, reviewer: Reviewer, keeper: Keeper, bodies: Bodies) -> None:
        self._reviewer = reviewer
        self._keeper = keeper
        self._bodies = bodies

    def collect(self) -> Iterator[Metric]:
        verdicts = CounterMetricFamily(
            "hami_webhook_verdicts",
            "Findings in pods, by what was done; 'allow' counts pods.",
            labels=("verb", "action", "rule"),
        )
        for labels, count in sorted(self._reviewer.counts().items()):
            verdicts.add_metric(labels, count)
        yield verdicts
        yield GaugeMetricFamily(
            "hami_webhook_certificate_expiry_timestamp_seconds",
            "When the certificate that is shown expires.",
            value=self._keeper.expires_at,
        )
        yield CounterMetricFamily(
            "hami_webhook_certificate_failures",
            "Rounds in which the certificates could not be looked after.",
            value=self._keeper.failures,
        )
        yield CounterMetricFamily(
            "hami_webhook_given_up_bodies",
            "Reviews turned away unread, because more came at once than there is memory for.",
            value=self._bodies.given_up,
        )
