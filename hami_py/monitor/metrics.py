"""The figures in Prometheus' text format.

The labels are those of NVIDIA's DCGM exporter, so that both can be joined:
https://github.com/NVIDIA/dcgm-exporter
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from hami_py.monitor.figures import CardFigures, ContainerFigures, NodeFigures

__all__ = ["exposition"]

_CARD = ("Hostname", "gpu", "UUID", "modelName")
_CONTAINER = (*_CARD, "namespace", "pod", "container")

_OF_CARDS: tuple[tuple[str, str, Callable[[CardFigures], float | None]], ...] = (
    ("hami_card_memory_bytes", "All memory of the card.", lambda c: c.memory),
    ("hami_card_memory_used_bytes", "Memory in use, by NVML.", lambda c: c.used),
    ("hami_card_memory_allocated_bytes", "Memory allocated to containers.", lambda c: c.allocated),
    ("hami_card_share_allocated_ratio", "Allocated part of its time.", lambda c: c.share_allocated),
    ("hami_card_foreign_memory_bytes", "Memory that no allocation covers.", lambda c: c.foreign),
    ("hami_card_healthy", "1 if new pods may get the card.", lambda c: c.healthy),
)

_OF_CONTAINERS: tuple[tuple[str, str, Callable[[ContainerFigures], float | None]], ...] = (
    ("hami_container_memory_limit_bytes", "Memory limit.", lambda c: c.limit),
    ("hami_container_memory_used_bytes", "Memory that it holds.", lambda c: c.used),
    ("hami_container_memory_driver_bytes", "The driver's own part of it.", lambda c: c.driver),
    ("hami_container_memory_peak_bytes", "Largest use seen, once a second.", lambda c: c.peak),
    ("hami_container_share_limit_ratio", "Part of the time that it may use.", lambda c: c.share),
    ("hami_container_share_soft", "1 if it also gets idle time, else 0.", lambda c: c.soft),
    ("hami_container_processes", "Processes that use the library.", lambda c: c.processes),
)

_COUNTED: tuple[tuple[str, str, Callable[[ContainerFigures], float]], ...] = (
    ("hami_container_engine_seconds", "Time of the card that it had.", lambda c: c.engine_s),
    ("hami_container_throttled_seconds", "Time it waited to launch.", lambda c: c.throttled_s),
    ("hami_container_refusals", "Refused allocations.", lambda c: c.refusals),
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
            "1 for the level of its limits.",
            labels=(*_CONTAINER, "level"),
        )
        for each in node.containers:
            level.add_metric((*self._container(each), each.level), 1)
        yield level
        excess = GaugeMetricFamily(
            "hami_pod_excess_memory_bytes",
            "Memory that the pod's processes hold beyond its limits, by NVML.",
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
            "Processes on the cards that no allocation explains.",
            labels=("Hostname", "kind"),
        )
        for kind, count in sorted(node.findings.items()):
            found.add_metric((node.node, kind), count)
        yield found
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
