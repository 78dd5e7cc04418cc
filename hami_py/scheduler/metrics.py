"""The extender's metrics for Prometheus: its answers, its watches, and allocations.

The allocator itself writes what is allocated on each node and card. For 5,000 nodes with 40,000
cards the client library takes seconds, and no filter is answered meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from hami_py.cluster.explanation import AllocatedNamespace
from hami_py.cluster.state import Cluster
from hami_py.kube import Reflector
from hami_py.model.pods.wire import Quota

_BUCKETS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.25, 1.0, 4.0, 16.0)

_RESOURCES: tuple[
    tuple[str, Callable[[AllocatedNamespace], int], Callable[[Quota], int | None], float], ...
] = (
    ("cards", lambda usage: usage.cards, lambda quota: quota.gpu, 1),
    ("memory_bytes", lambda usage: usage.memory_mib, lambda quota: quota.memory_mib, 1 << 20),
    ("cores", lambda usage: usage.cores, lambda quota: quota.cores, 0.01),
)
"""The resources of a quota; 1 of ``cores`` is the whole time of one card."""

A = TypeVar("A")
R = TypeVar("R")


class Metrics:
    """Times the verbs, and reads the counters of the cluster and of its watches by kind."""

    def __init__(
        self, cluster: Cluster, watches: Mapping[str, Reflector[Any]] | None = None
    ) -> None:
        self._registry = CollectorRegistry()
        self._cluster = cluster
        self._seconds = Histogram(
            "hami_scheduler_verb_duration_seconds",
            "Time from a complete request to its answer.",
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
        text = generate_latest(self._registry) + self._cluster.allocator.node_metrics()
        return text.decode()

    def hami(self) -> bytes:
        """The metrics of cards, pods and quotas under the names of HAMi's scheduler (2.10)."""
        quotas = generate_latest(_HamiQuotas(self._cluster))
        return self._cluster.allocator.hami_metrics() + quotas

    def cards(self) -> bytes:
        """The metrics by card: with eight cards per node, eight times as many as by node."""
        return self._cluster.allocator.card_metrics()


class _Counts(Collector):
    def __init__(self, cluster: Cluster, watches: Mapping[str, Reflector[Any]]) -> None:
        self._cluster = cluster
        self._watches = watches

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "hami_scheduler_invalid_objects",
            "Nodes, pods and quotas with invalid annotations or requests; the log names them.",
            value=self._cluster.invalid_objects,
        )
        yield GaugeMetricFamily(
            "hami_scheduler_duplicated_cards",
            "Cards that more than one node publishes; their room counts on each.",
            value=len(self._cluster.nodes.duplicates),
        )
        yield from self._of_waiting()
        yield from self._of_namespaces()
        undecodable = CounterMetricFamily(
            "hami_scheduler_undecodable_objects",
            "Objects that do not match Kubernetes' own types. The extender keeps using their last"
            " valid version.",
            labels=("kind",),
        )
        silence = GaugeMetricFamily(
            "hami_scheduler_watch_silence_seconds",
            "Time since the last event from the API server; one or two minutes are normal.",
            labels=("kind",),
        )
        for kind, watch in self._watches.items():
            undecodable.add_metric((kind,), watch.undecoded)
            if (silent_s := watch.silent_s()) is not None:
                silence.add_metric((kind,), silent_s)
        yield undecodable
        yield silence

    def _of_waiting(self) -> Iterator[Metric]:
        pods = GaugeMetricFamily(
            "hami_scheduler_waiting_pods",
            "Pods that wait for cards, by the reason of most nodes.",
            labels=("reason",),
        )
        longest = GaugeMetricFamily(
            "hami_scheduler_longest_wait_seconds",
            "Time since the creation of the oldest of these pods.",
            labels=("reason",),
        )
        for reason, wait in sorted(self._cluster.waiting.reasons(time.time()).items()):
            pods.add_metric((reason,), wait.count)
            longest.add_metric((reason,), wait.longest_s)
        yield pods
        yield longest

    def _of_namespaces(self) -> Iterator[Metric]:
        used = GaugeMetricFamily(
            "hami_scheduler_namespace_allocated",
            "What the namespace's pods have, as its quotas count it. 1 of cores is the whole time"
            " of one card.",
            labels=("namespace", "resource"),
        )
        limits = GaugeMetricFamily(
            "hami_scheduler_quota_limit",
            "The most that the namespace's pods may have.",
            labels=("namespace", "quota", "resource"),
        )
        for usage in _namespaces(self._cluster):
            for resource, of_usage, of_quota, factor in _RESOURCES:
                used.add_metric((usage.namespace, resource), of_usage(usage) * factor)
                for quota in usage.quotas:
                    if (most := of_quota(quota)) is not None:
                        limits.add_metric((usage.namespace, quota.name, resource), most * factor)
        yield used
        yield limits


class _HamiQuotas(Collector):
    """Quotas as HAMi reports them: in the units of the resources, memory in MiB."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def collect(self) -> Iterator[Metric]:
        labels = ("zone", "namespace", "quota_name")
        used = GaugeMetricFamily(
            "hami_resource_quota_used", "What a namespace has", labels=(*labels, "limit")
        )
        limits = GaugeMetricFamily(
            "hami_resource_quota_limit", "The most that it may have", labels=labels
        )
        profile = self._cluster.settings.profiles[0]
        names = (profile.gpu, profile.memory, profile.cores)
        for usage in _namespaces(self._cluster):
            for name, (_, of_usage, of_quota, _) in zip(names, _RESOURCES, strict=True):
                found = [most for q in usage.quotas if (most := of_quota(q)) is not None]
                if found:
                    at, most = ("vGPU", usage.namespace, name), min(found)
                    used.add_metric((*at, str(most)), of_usage(usage))
                    limits.add_metric(at, most)
        yield used
        yield limits


def _namespaces(cluster: Cluster) -> list[AllocatedNamespace]:
    return msgspec.json.decode(cluster.allocator.namespaces(), type=list[AllocatedNamespace])
