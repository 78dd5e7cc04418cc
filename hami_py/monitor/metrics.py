"""The figures in Prometheus' text format.

The labels are those of NVIDIA's DCGM exporter, so that both can be joined:
https://github.com/NVIDIA/dcgm-exporter
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from hami_py.monitor.figures import CardFigures, ContainerFigures, NodeFigures

_CARD = ("Hostname", "gpu", "UUID", "modelName")
_CONTAINER = (*_CARD, "namespace", "pod", "container")

_OF_CARDS: tuple[tuple[str, str, Callable[[CardFigures], float | None]], ...] = (
    ("hami_card_memory_bytes", "Memory of the card.", lambda c: c.memory),
    ("hami_card_memory_used_bytes", "The part in use, by NVML.", lambda c: c.used),
    (
        "hami_card_memory_allocated_bytes",
        "The part that is allocated to containers.",
        lambda c: c.allocated,
    ),
    ("hami_card_share_allocated_ratio", "Allocated part of its time.", lambda c: c.share_allocated),
    ("hami_card_foreign_memory_bytes", "Memory that no limit covers.", lambda c: c.foreign),
    ("hami_card_healthy", "1 if new pods may get the card.", lambda c: c.healthy),
)

_OF_CONTAINERS: tuple[tuple[str, str, Callable[[ContainerFigures], float | None]], ...] = (
    (
        "hami_container_memory_limit_bytes",
        "Memory limit; without a limit there is no series.",
        lambda c: c.limit,
    ),
    (
        "hami_container_memory_used_bytes",
        "What its processes hold, with the driver's own memory.",
        lambda c: c.used,
    ),
    ("hami_container_memory_driver_bytes", "The driver's own part of it.", lambda c: c.driver),
    ("hami_container_memory_peak_bytes", "Largest use since it first started.", lambda c: c.peak),
    (
        "hami_container_share_limit_ratio",
        "Part of the card's time that it may use; without a limit there is no series.",
        lambda c: c.share,
    ),
    (
        "hami_container_share_soft",
        "1 if its share is soft: it also gets idle time. 0 if it is hard. No series without a "
        "share.",
        lambda c: c.soft,
    ),
    ("hami_container_processes", "Its processes that use the library.", lambda c: c.processes),
)

_COUNTED: tuple[tuple[str, str, Callable[[ContainerFigures], float]], ...] = (
    ("hami_container_engine_seconds", "Engine time of its processes.", lambda c: c.engine_s),
    (
        "hami_container_throttled_seconds",
        "Time for which its threads waited to launch.",
        lambda c: c.throttled_s,
    ),
    (
        "hami_container_refusals",
        "Allocations that were refused because of the limit.",
        lambda c: c.refusals,
    ),
)


def exposition(figures: NodeFigures) -> bytes:
    """All figures of a node."""
    registry = CollectorRegistry()
    registry.register(_Figures(figures))
    return generate_latest(registry)


class _Figures(Collector):
    def __init__(self, figures: NodeFigures) -> None:
        self._figures = figures
        self._cards = {card.uuid: card for card in figures.cards}

    def collect(self) -> Iterator[Metric]:
        node = self._figures
        for name, text, of_card in _OF_CARDS:
            gauge = GaugeMetricFamily(name, text, labels=_CARD)
            for card in node.cards:
                if (value := of_card(card)) is not None:
                    gauge.add_metric(self._labels(card.uuid), value)
            yield gauge
        for name, text, of_container in _OF_CONTAINERS:
            gauge = GaugeMetricFamily(name, text, labels=_CONTAINER)
            for each in node.containers:
                if (value := of_container(each)) is not None:
                    gauge.add_metric(self._container(each), value)
            yield gauge
        for name, text, count in _COUNTED:
            counter = CounterMetricFamily(name, text, labels=_CONTAINER)
            for each in node.containers:
                counter.add_metric(self._container(each), count(each))
            yield counter
        level = GaugeMetricFamily(
            "hami_container_enforcement",
            "1 for preload or none: how its limits are enforced.",
            labels=(*_CONTAINER, "level"),
        )
        for each in node.containers:
            level.add_metric((*self._container(each), each.level), 1)
        yield level
        excess = GaugeMetricFamily(
            "hami_pod_excess_memory_bytes",
            "Memory of a card that a pod's processes hold beyond its limits, by NVML; only pods "
            "that hold more.",
            labels=(*_CARD, "namespace", "pod"),
        )
        for over in node.excess:
            labels = (*self._labels(over.card), over.namespace, over.pod)
            excess.add_metric(labels, over.memory)
        yield excess
        yield from self._of_node()

    def _of_node(self) -> Iterator[Metric]:
        node = self._figures
        found = GaugeMetricFamily(
            "hami_node_unexplained_processes",
            "Processes by the event about them: BypassesLimits (bypass), CoversLimits (covered), "
            "UsesUnallocatedCard (unallocated), ForeignProcess (foreign).",
            labels=("Hostname", "kind"),
        )
        for kind, count in sorted(node.findings.items()):
            found.add_metric((node.node, kind), count)
        yield found
        starts = HistogramMetricFamily(
            "hami_node_start_duration_seconds",
            "Time from the creation of a pod to the start of its first program; pods that had "
            "started before the agent are left out.",
            labels=("Hostname",),
        )
        counts = [(f"{most:g}", count) for most, count in sorted(node.starts.counts.items())]
        starts.add_metric((node.node,), [*counts, ("+Inf", node.starts.count)], node.starts.total_s)
        yield starts
        for name, text, value in (
            ("hami_node_waiting_containers", "Containers that wait at their start.", node.waiting),
            (
                "hami_node_other_device_containers",
                "Containers whose device IDs at the kubelet name other cards than they have.",
                node.other_devices,
            ),
            ("hami_node_registered", "1 if the kubelet knows the devices.", node.registered),
        ):
            gauge = GaugeMetricFamily(name, text, labels=("Hostname",))
            gauge.add_metric((node.node,), value)
            yield gauge

    def _labels(self, uuid: str) -> tuple[str, ...]:
        card = self._cards.get(uuid)
        index, model = ("", "") if card is None else (str(card.index), card.model)
        return (self._figures.node, index, uuid, model)

    def _container(self, each: ContainerFigures) -> tuple[str, ...]:
        return (*self._labels(each.card), each.namespace, each.pod, each.container)
