"""The cards of this machine. Only this package calls NVML and the driver."""

from hami_py.gpu.nvml import cards, driver_version, memory_free
from hami_py.gpu.sweep import Sweeper

__all__ = ["Sweeper", "cards", "driver_version", "memory_free"]
