"""The webhook's metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from hami_py.serving import Bodies
from hami_py.webhook.keeper import Keeper
from hami_py.webhook.review import Reviewer


def exposition(reviewer: Reviewer, keeper: Keeper, bodies: Bodies) -> str:
    """The metrics in Prometheus' text format."""
    return generate_latest(_Counts(reviewer, keeper, bodies)).decode()


@dataclass(frozen=True)
class _Counts(Collector):
    reviewer: Reviewer
    keeper: Keeper
    bodies: Bodies

    def collect(self) -> Iterator[Metric]:
        reviews = CounterMetricFamily(
            "hami_webhook_reviews",
            "Findings in pods. The action allow counts pods, every other one counts findings; a "
            "pod may have several, and is checked by mutate and by validate.",
            labels=("verb", "action", "rule"),
        )
        for labels, count in sorted(self.reviewer.counts().items()):
            reviews.add_metric(labels, count)
        yield reviews
        yield GaugeMetricFamily(
            "hami_webhook_certificate_expiry_timestamp_seconds",
            "When the current certificate expires.",
            value=self.keeper.expires_at,
        )
        yield CounterMetricFamily(
            "hami_webhook_certificate_failures",
            "Failed checks of the certificates. There is one every 10 s, or every 2 s while "
            "there is no certificate.",
            value=self.keeper.failures,
        )
        yield CounterMetricFamily(
            "hami_webhook_incomplete_bodies",
            "Reviews that were refused unread, because too many arrived at once.",
            value=self.bodies.dropped,
        )
