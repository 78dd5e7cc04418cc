"""The memory that the driver takes for a context, by model and driver version.

The driver takes it when a process creates a context on a card, before the process allocates
anything. It counts against the limit of the slice. The driver does not report the size in advance,
so the code that creates the slice takes it from this table.

The figures are estimates. They hold for local memory and printf buffers of the usual size. ``make
bench-gpu`` measures the card and the driver of a machine ("primary context"). If a card is not
listed, its contexts are not charged, unless ``HAMI_CONTEXT_MEMORY`` sets a figure.
"""

from collections.abc import Mapping

_MIB = 1 << 20

CONTEXT_MIB: Mapping[str, Mapping[int, int]] = {
    "Tesla T4": {0: 164},
    "NVIDIA A100-SXM4-40GB": {0: 413},
    "NVIDIA A100-SXM4-40GB MIG 1g.5gb": {0: 102},
    "NVIDIA A100-SXM4-40GB MIG 3g.20gb": {0: 220},
    "NVIDIA A100-SXM4-80GB": {0: 413},
    "NVIDIA H100 80GB HBM3": {0: 520},
    "NVIDIA H200": {0: 520},
    "NVIDIA L40S": {0: 420},
}
"""MiB by the model's name in NVML, and by the first major version of the driver to which the figure
applies; 0 is every version."""


def context_memory(model: str, driver_version: str) -> int | None:
    """Bytes that the driver takes for a context on a card; None = unknown.

    Args:
        model: the card's name in NVML.
        driver_version: the driver's version, e.g. ``580.95.05``.
    """
    figures = CONTEXT_MIB.get(model, {})
    major = driver_version.partition(".")[0]
    version = int(major) if major.isdecimal() else 0
    applicable = [since for since in figures if since <= version]
    return figures[max(applicable)] * _MIB if applicable else None
