"""The cards of this machine. Only this package calls NVML and the driver."""

from hami_py.gpu.nvml import cards, driver_version, memory_free

__all__ = ["cards", "driver_version", "memory_free"]
