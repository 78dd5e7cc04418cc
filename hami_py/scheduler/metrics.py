"""What the extender tells Prometheus: how it answers, how it sees the cluster, how full that is.

What is given, of each node and each card, the allocator writes itself: of 5,000 nodes with 40,000
cards the client library takes seconds, in which no filter is answered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, TypeVar

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from hami_py.scheduler.cluster import Cluster

__all__ = ["Meter", "Watch"]

_BUCKETS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.25, 1.0, 4.0, 16.0)

A = TypeVar("A")
R = TypeVar("R")


class Watch(Protocol):
    """What is told of a watch."""

    @property
    def undecoded(self) -> int:
        """Objects so far that could not be decoded."""

    def silent_s(self) -> float | None:
        """Seconds since the API server was last heard of there."""


class Meter:
    """Times the verbs, and reads what the cluster and its watches, by what they watch, count."""

    def __init__(self, cluster: Cluster, watches: Mapping[str, Watch] | None = None) -> None:
        self._registry = CollectorRegistry()
        self._allocator = cluster.allocator
        self._seconds = Histogram(
            "hami_scheduler_verb_duration_seconds",
            "Time from a decoded request to its answer.",
            labelnames=("verb",),
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._registry.register(_Counts(cluster, watches or {}))

    def timed(self, verb: str, answer: Callable[[A], R]) -> Callable[[A], R]:
        """The same function, timed."""
        seconds = self._seconds.labels(verb)

        def timed(argument: A) -> R:
            began = time.perf_counter()
            try:
                return answer(argument)
            finally:
                seconds.observe(time.perf_counter() - began)

        return timed

    def exposition(self) -> str:
        """The metrics, in Prometheus' text format; of what is given, those by node."""
        return (generate_latest(self._registry) + self._allocator.node_metrics()).decode()

    def cards(self) -> bytes:
        """What is given, by card: eight times as much where nodes have eight cards."""
        return self._allocator.card_metrics()


class _Counts(Collector):
    def __init__(self, cluster: Cluster, watches: Mapping[str, Watch]) -> None:
        self._cluster = cluster
        self._watches = watches

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "hami_scheduler_unreadable_objects",
            "Nodes, pods and quotas whose annotations or requests could not be read.",
            value=self._cluster.unreadable_objects,
        )
        yield GaugeMetricFamily(
            "hami_scheduler_duplicated_cards",
            "Cards that more than one node says it has; their room counts on each.",
            value=len(self._cluster.nodes.duplicates),
        )
        undecoded = CounterMetricFamily(
            "hami_scheduler_undecoded_objects",
            "Objects of a watch that count as they were known before: they cannot be decoded.",
            labels=("kind",),
        )
        silence = GaugeMetricFamily(
            "hami_scheduler_watch_silence_seconds",
            "Time since the API server was last heard of there; every minute or two is usual.",
            labels=("kind",),
        )
        for kind, watch in self._watches.items():
            undecoded.add_metric((kind,), watch.undecoded)
            if (silent_s := watch.silent_s()) is not None:
                silence.add_metric((kind,), silent_s)
        yield undecoded
        yield silence
