"""What the driver takes of a card beyond what programs request, by model and driver version.

It takes memory for a context when a process creates one, before the process allocates anything. And
it takes large requests in whole granules, because its pages are large. Both count against the limit
of the slice. The driver does not report the sizes in advance. They are measured
(``measured_memory``), and come from this table until that is done, or where it cannot be done.

The figures of the H100 and the H200 are measured with driver 580: "cuInit" and "primary context" in
docs/results (gpu-memory.md, h100/gpu-memory.md), rounded up. The others are estimates. All figures
are for the default stack, heap and printf limits. ``make bench-gpu`` measures the card and the
driver of a machine ("cuInit", "primary context", "cuMemAlloc"). On a card that is neither measured
nor listed nothing is charged beyond the requests, unless ``HAMI_CONTEXT_MEMORY`` and
``HAMI_GRANULE`` set figures.
"""

from collections.abc import Mapping

from hami_py.model.cards import DriverMemory

_MIB = 1 << 20

CONTEXT_MIB: Mapping[str, Mapping[int, int]] = {
    "Tesla T4": {0: 164},
    "NVIDIA A100-SXM4-40GB": {0: 413},
    "NVIDIA A100-SXM4-40GB MIG 1g.5gb": {0: 102},
    "NVIDIA A100-SXM4-40GB MIG 3g.20gb": {0: 220},
    "NVIDIA A100-SXM4-80GB": {0: 413},
    "NVIDIA H100 80GB HBM3": {0: 527},
    "NVIDIA H200": {0: 527},
    "NVIDIA L40S": {0: 420},
}
"""MiB by the model's name in NVML, and by the first major version of the driver to which the figure
applies; 0 is every version."""

GRANULE = 2 * _MIB
"""The size of a large page since NVIDIA's Pascal, so of every listed card."""


def driver_memory(model: str, driver_version: str) -> DriverMemory:
    """What the driver takes of a card; unknown for a model that is not listed."""
    figures = CONTEXT_MIB.get(model)
    if figures is None:
        return DriverMemory()
    major = driver_version.partition(".")[0]
    version = int(major) if major.isdecimal() else 0
    applicable = [since for since in figures if since <= version]
    context = figures[max(applicable)] * _MIB if applicable else None
    return DriverMemory(context, GRANULE)
