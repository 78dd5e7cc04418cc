"""The figures under the names of HAMi's vGPUmonitor, for dashboards and alerts that exist.

They are at a path of their own: a ``_ratio`` of HAMi's is 0 to 100, and no name says whose it is.
Names and labels: https://github.com/Project-HAMi/HAMi, cmd/vGPUmonitor/metrics.go (2.10). HAMi's
utilisation of the whole card, and modules and buffers of a container, are left out, because the
agent does not measure them. So is the time since the last kernel, which it knows only where a share
is in force.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from hami_py.model.columns import BY_KEY
from hami_py.monitor.figures import NodeFigures

_ZONE = "vGPU"

_HOST = ("zone", "device_index", "device_uuid", "device_type")
_CONTAINER = ("zone", "namespace", "pod", "container", "vdevice_index", "device_uuid")

_PERCENT = 100

_OF_CONTAINERS = (
    ("hami_vgpu_memory_used_bytes", "vGPU device memory usage in bytes", "memory_used", 1),
    ("hami_vgpu_memory_limit_bytes", "vGPU device memory limit in bytes", "memory_limit", 1),
    ("hami_container_device_memory_bytes", "Container device memory in bytes", "memory_used", 1),
    ("hami_vgpu_memory_context_bytes", "Memory that the driver has taken", "driver_memory", 1),
    (
        "hami_container_device_utilization_ratio",
        "Percent of the card's time that it has used",
        "share_used",
        _PERCENT,
    ),
)
"""HAMi's name and text, our column, and how many of HAMi's unit one of ours is."""


def hami_exposition(figures: NodeFigures) -> bytes:
    """The metrics with HAMi's names, in Prometheus' text format."""
    return generate_latest(_Figures(figures))


class _Figures(Collector):
    def __init__(self, figures: NodeFigures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        used = GaugeMetricFamily(
            "hami_host_gpu_memory_used_bytes", "GPU device memory usage in bytes", labels=_HOST
        )
        for card in self._figures.cards:
            if card.memory_used is not None:
                used.add_metric((_ZONE, str(card.index), card.uuid, card.model), card.memory_used)
        yield used
        for name, text, key, factor in _OF_CONTAINERS:
            gauge = GaugeMetricFamily(name, text, labels=_CONTAINER)
            rows: dict[tuple[str, str, str], int] = {}
            for each in self._figures.containers:
                names = (each.namespace, each.pod, each.container)
                row = rows[names] = rows.get(names, -1) + 1
                if (value := BY_KEY[key].value(each)) is not None:
                    labels = (_ZONE, *names, str(row), each.use.uuid)
                    gauge.add_metric(labels, float(value) * factor)
            yield gauge
