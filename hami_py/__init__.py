"""Share one NVIDIA GPU between programs, with limits that hold.

    >>> import hami_py as hami
    >>> hami.limits().source        # outside any slice
    'none'

Sizes are whole numbers with a unit (``"4GiB"``, ``"4096MiB"``). Shares of a card's time are percent
(``30``). Cards are named by UUID or by their index in ``hami.devices()``. All errors of this
package are ``HamiError``s. See docs/python.md and docs/configuration.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from hami_py._native import VERSION

if TYPE_CHECKING:
    from hami_py.api import (
        devices,
        limit_this_process,
        limits,
        list_slices,
        open_slice,
        remove_slice,
        run,
        slice,
        usage,
    )
    from hami_py.errors import (
        CannotRelaunch,
        DriverError,
        HamiError,
        InvalidValue,
        NoDevice,
        NoDriver,
        SliceInUse,
        StateError,
        UnknownCard,
        UnknownSlice,
        UnsupportedPlatform,
    )
    from hami_py.model import (
        Card,
        CardLimit,
        CardUsage,
        Event,
        EventKind,
        Limits,
        Mode,
        Priority,
        ProcessUsage,
        Shares,
        Sizes,
        SliceCard,
        SliceInfo,
        SliceProcess,
        SliceState,
        Summary,
        Usage,
        Use,
    )
    from hami_py.slices import Slice

__all__ = [
    "CannotRelaunch",
    "Card",
    "CardLimit",
    "CardUsage",
    "DriverError",
    "Event",
    "EventKind",
    "HamiError",
    "InvalidValue",
    "Limits",
    "Mode",
    "NoDevice",
    "NoDriver",
    "Priority",
    "ProcessUsage",
    "Shares",
    "Sizes",
    "Slice",
    "SliceCard",
    "SliceInUse",
    "SliceInfo",
    "SliceProcess",
    "SliceState",
    "StateError",
    "Summary",
    "UnknownCard",
    "UnknownSlice",
    "UnsupportedPlatform",
    "Usage",
    "Use",
    "__version__",
    "devices",
    "limit_this_process",
    "limits",
    "list_slices",
    "open_slice",
    "remove_slice",
    "run",
    "slice",
    "usage",
]

__version__ = VERSION


def __getattr__(name: str) -> object:
    """Import a name when it is used first, so that `import hami_py` itself takes no time."""
    # A name of the API may be that of a module of the model.
    for module in ("errors", "api", "model") if name in __all__ else ():
        found = import_module(f"hami_py.{module}")
        if hasattr(found, name):
            globals()[name] = getattr(found, name)
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
