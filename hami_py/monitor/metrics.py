"""The figures in Prometheus' text format.

The metrics of cards and containers are in the table ``hami_py.model.columns``. The labels are
those of NVIDIA's DCGM exporter, so that both can be joined:
https://github.com/NVIDIA/dcgm-exporter
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from hami_py.model import NodeCard, SliceUse
from hami_py.model.columns import CARDS, SLICES, Column
from hami_py.monitor.figures import NodeFigures

R = TypeVar("R")

_CARD = ("Hostname", "gpu", "UUID", "modelName")
_USERS = (
    ("hami_user_held_byte_seconds", "Memory that the user's processes hold by NVML, over time."),
    ("hami_user_reserved_card_seconds", "Parts of cards that the user's slices have, over time."),
)
"""They begin when the service starts."""

_CONTAINER = (*_CARD, "namespace", "pod", "container")


def exposition(figures: NodeFigures) -> bytes:
    """All figures of a node."""
    return generate_latest(_Figures(figures))


def machine_exposition(figures: NodeFigures, totals: Mapping[str, Sequence[float]]) -> bytes:
    """The figures of a machine that users share.

    Args:
        figures: its slices as containers: the user as the namespace, the kind as the container.
        totals: by user, the byte-seconds held and the card-seconds reserved.
    """
    return generate_latest(_Machine(figures, totals))


class _Machine(Collector):
    def __init__(self, figures: NodeFigures, totals: Mapping[str, Sequence[float]]) -> None:
        self._figures, self._totals = figures, totals

    def collect(self) -> Iterator[Metric]:
        node = _Figures(self._figures)
        yield from _families(CARDS, _CARD, node.cards())
        named = [
            replace(each, metric=each.metric.replace("_container_", "_slice_"))
            for each in SLICES
            if each.metric is not None
        ]
        yield from _families(named, (*_CARD, "user", "slice", "kind"), node.containers())
        for at, (name, text) in enumerate(_USERS):
            family = CounterMetricFamily(name, text, labels=("user",))
            for user, sums in list(self._totals.items()):
                family.add_metric((user,), sums[at])
            yield family


class _Figures(Collector):
    def __init__(self, figures: NodeFigures) -> None:
        self._figures = figures
        self._cards = {card.uuid: card for card in figures.cards}

    def collect(self) -> Iterator[Metric]:
        node = self._figures
        yield from _families(CARDS, _CARD, self.cards())
        containers = self.containers()
        yield from _families(SLICES, _CONTAINER, containers)
        level = GaugeMetricFamily(
            "hami_container_enforcement",
            "1 for what enforces its limit on memory (level) and on time (time).",
            labels=(*_CONTAINER, "level", "time"),
        )
        for labels, each in containers:
            if each.level is not None and each.time_level is not None:
                level.add_metric((*labels, each.level, each.time_level), 1)
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

    def cards(self) -> list[tuple[tuple[str, ...], NodeCard]]:
        """The cards, with their labels."""
        return [(self._labels(each.uuid), each) for each in self._figures.cards]

    def containers(self) -> list[tuple[tuple[str, ...], SliceUse]]:
        """The containers, with their labels."""
        return [(self._container(each), each) for each in self._figures.containers]

    def _labels(self, uuid: str) -> tuple[str, ...]:
        card = self._cards.get(uuid)
        index, model = ("", "") if card is None else (str(card.index), card.model)
        return (self._figures.node, index, uuid, model)

    def _container(self, each: SliceUse) -> tuple[str, ...]:
        return (*self._labels(each.use.uuid), each.namespace, each.pod, each.container)


def _families(
    columns: Sequence[Column], labels: Sequence[str], rows: Sequence[tuple[Sequence[str], R]]
) -> Iterator[Metric]:
    """The metrics among the columns, with a sample for each row whose value is known."""
    for column in columns:
        if column.metric is not None:
            kind = CounterMetricFamily if column.is_counter else GaugeMetricFamily
            family = kind(column.metric, column.help, labels=labels)
            for of_row, row in rows:
                if (value := column.value(row)) is not None:
                    family.add_metric(of_row, float(value))
            yield family
