"""The extender's metrics for Prometheus: its answers, its watches, and allocations.

The allocator itself writes what is allocated on each node and card. For 5,000 nodes with 40,000
cards the client library takes seconds, and no filter is answered meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, TypeVar

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from hami_py.scheduler.state.cluster import Cluster

__all__ = ["Metrics", "Watch"]

_BUCKETS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.25, 1.0, 4.0, 16.0)

A = TypeVar("A")
R = TypeVar("R")


class Watch(Protocol):
    """The figures of a watch that are reported."""

    @property
    def undecoded(self) -> int:
        """The number of objects so far that could not be decoded."""

    def silent_s(self) -> float | None:
        """The seconds since the API server last sent something."""


class Metrics:
    """Times the verbs, and reads the counters of the cluster and of its watches by kind."""

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
        """All metrics but those by card, in Prometheus' text format."""
        return (generate_latest(self._registry) + self._allocator.node_metrics()).decode()

    def cards(self) -> bytes:
        """The metrics by card: with eight cards per node, eight times as many as by node."""
        return self._allocator.card_metrics()


class _Counts(Collector):
    def __init__(self, cluster: Cluster, watches: Mapping[str, Watch]) -> None:
        self._cluster = cluster
        self._watches = watches

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "hami_scheduler_invalid_objects",
            "Nodes, pods and quotas with invalid annotations or requests.",
            value=self._cluster.invalid_objects,
        )
        yield GaugeMetricFamily(
            "hami_scheduler_duplicated_cards",
            "Cards that more than one node reports; their room counts on each.",
            value=len(self._cluster.nodes.duplicates),
        )
        undecodable = CounterMetricFamily(
            "hami_scheduler_undecodable_objects",
            "Objects of a watch that cannot be decoded; they count as they were known before.",
            labels=("kind",),
        )
        silence = GaugeMetricFamily(
            "hami_scheduler_watch_silence_seconds",
            "Time since the API server last sent something; one or two minutes are usual.",
            labels=("kind",),
        )
        for kind, watch in self._watches.items():
            undecodable.add_metric((kind,), watch.undecoded)
            if (silent_s := watch.silent_s()) is not None:
                silence.add_metric((kind,), silent_s)
        yield undecodable
        yield silence
