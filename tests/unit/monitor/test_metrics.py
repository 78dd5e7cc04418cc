"""The figures of a node under our names and under HAMi's, and joined with the DCGM exporter's."""

from dataclasses import replace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from hami_py.model import NodeCard
from hami_py.monitor import (
    NodeFigures,
    Starts,
    exposition,
    hami_exposition,
)
from support.slice_uses import container

CARD = NodeCard("GPU-0", 3, "NVIDIA T4", 16 << 30, 5 << 30, 4 << 30, 0.3, 0, healthy=True)
OTHER = NodeCard("GPU-1", 4, "NVIDIA T4", 16 << 30, None, 0, 0.0, 0, healthy=True)
NAMES = ("ml", "train", "main")


def samples(text: bytes, name: str) -> list[tuple[dict[str, str], float]]:
    families = text_string_to_metric_families(text.decode())
    return [
        (dict(sample.labels), sample.value)
        for family in families
        for sample in family.samples
        if sample.name == name
    ]


def node(**more: Any) -> NodeFigures:
    use = {"memory_used": 3 << 30, "driver_memory": 1 << 20, "last_used": 1.5e9}
    first = container(*NAMES, "GPU-0", limit=4 << 30, share=30, share_used=0.25, **use)
    second = container(*NAMES, "GPU-1", level="none", time_level="none")
    return NodeFigures("n", (CARD, OTHER), (first, second), **more)


def test_hamis_names_have_hamis_labels_and_units() -> None:
    text = hami_exposition(node())
    at = {"zone": "vGPU", "namespace": "ml", "pod": "train", "container": "main"}
    first = {**at, "vdevice_index": "0", "device_uuid": "GPU-0"}
    second = {**at, "vdevice_index": "1", "device_uuid": "GPU-1"}
    assert samples(text, "hami_vgpu_memory_used_bytes") == [(first, 3 << 30), (second, 0)]
    assert samples(text, "hami_vgpu_memory_limit_bytes") == [(first, 4 << 30)]
    assert samples(text, "hami_container_device_utilization_ratio") == [(first, 25)]
    card = {"zone": "vGPU", "device_index": "3", "device_uuid": "GPU-0", "device_type": "NVIDIA T4"}
    assert samples(text, "hami_host_gpu_memory_used_bytes") == [(card, 5 << 30)]


def test_a_container_has_one_series_for_what_enforces_its_limits() -> None:
    found = samples(exposition(node()), "hami_container_enforcement")
    assert [
        (labels["UUID"], labels["level"], labels["time"], value) for labels, value in found
    ] == [
        ("GPU-0", "preload", "lease", 1),
        ("GPU-1", "none", "none", 1),
    ]


def test_the_times_of_starts_are_a_histogram() -> None:
    text = exposition(node(starts=Starts({1.0: 0, 2.0: 3, 4.0: 5}, 6, 20.5)))
    buckets = samples(text, "hami_node_start_duration_seconds_bucket")
    assert [(labels["le"], value) for labels, value in buckets] == [
        ("1", 0),
        ("2", 3),
        ("4", 5),
        ("+Inf", 6),
    ]
    assert samples(text, "hami_node_start_duration_seconds_sum")[0][1] == 20.5


def test_an_unknown_figure_has_no_series() -> None:
    silent = replace(
        container(*NAMES, "GPU-0", limit=4 << 30, share=30, processes=None), is_known=False
    )
    text = exposition(NodeFigures("n", (CARD, OTHER), (silent,)))
    assert [value for _, value in samples(text, "hami_container_memory_limit_bytes")] == [4 << 30]
    for name in ("memory_used_bytes", "engine_seconds_total", "processes", "share_soft"):
        assert samples(text, f"hami_container_{name}") == []
    known = exposition(node())
    assert [value for _, value in samples(known, "hami_container_share_soft")] == [0]
    used = samples(known, "hami_container_last_used_timestamp_seconds")
    assert [(labels["UUID"], value) for labels, value in used] == [("GPU-0", 1.5e9)]
