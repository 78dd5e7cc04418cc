"""The cards of this machine. NVML and the driver are spoken to here and nowhere else."""

from hami_py.gpu.nvml import cards, driver_version, memory_free

__all__ = ["cards", "driver_version", "memory_free"]
