"""The cards of this machine. Only this package calls NVML and the driver.

NVML's bindings take longer to import than the rest of ``hami_py``, so they are imported when the
first of these functions is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hami_py.gpu.nvml import cards, driver_version, memory_free

__all__ = ["cards", "driver_version", "memory_free"]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name in __all__:
        return getattr(import_module("hami_py.gpu.nvml"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
