"""The memory of a card that the driver takes beyond the requests of programs, by model.

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

CONTEXT_MIB: Mapping[str, int] = {
    "Tesla T4": 164,
    "NVIDIA A100-SXM4-40GB": 413,
    "NVIDIA A100-SXM4-40GB MIG 1g.5gb": 102,
    "NVIDIA A100-SXM4-40GB MIG 3g.20gb": 220,
    "NVIDIA A100-SXM4-80GB": 413,
    "NVIDIA H100 80GB HBM3": 527,
    "NVIDIA H200": 527,
    "NVIDIA L40S": 420,
}
"""MiB by the model's name in NVML."""

GRANULE = 2 * _MIB
"""The size of a large page since NVIDIA's Pascal, so of every listed card."""


def driver_memory(model: str) -> DriverMemory:
    """The memory that the driver takes of a card; unknown for a model that is not listed."""
    mib = CONTEXT_MIB.get(model)
    return DriverMemory() if mib is None else DriverMemory(mib * _MIB, GRANULE)
