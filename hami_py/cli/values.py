"""Values as text: sizes, durations, and what columns show."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from hami_py.model import legible
from hami_py.model.columns import Unit, Value

_GIB = 1 << 30


def duration(seconds: float) -> str:
    """Seconds for people: ``-`` for none, ``<0.1s``, ``0.3s``, ``2m05s``, ``1h00m``."""
    if not seconds:
        return "-"
    if seconds < 0.1:
        return "<0.1s"
    whole = int(seconds)
    if whole >= 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    if whole >= 60:
        return f"{whole // 60}m{whole % 60:02}s"
    # Rounded down, so that 59.96 s is not shown as 60.0 s.
    return f"{int(seconds * 10) / 10}s"


def approximate(memory: int) -> str:
    """Bytes for people: ``1.5GiB``, ``320MiB``; a size that is not exact has a fraction."""
    size, unit = float(memory), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    exact = size.is_integer()
    return f"{size:.0f}{unit}" if exact or size >= 100 else f"{size:.1f}{unit}"


def gib(memory: float) -> str:
    """Bytes in GiB, with one decimal place if it is not 0."""
    return f"{memory / _GIB:.1f}".removesuffix(".0")


def ago(instant: float) -> str:
    """How long ago a time in seconds since 1970 is: ``now``, ``12s``, ``1h00m``."""
    age = int(time.time() - instant)
    return duration(age).replace(".0s", "s") if age > 1 else "now"


Formats = Mapping[Unit, Callable[[Any], str]]

OF_MACHINE: Formats = {
    "text": str,
    "bytes": approximate,
    "seconds": duration,
    "time": ago,
    "part": lambda part: f"{100 * part:.0f}%",
    "number": lambda number: f"{number:.0f}",
}
"""How the tables of one machine write a value."""

OF_CLUSTER: Formats = {
    **OF_MACHINE,
    "text": legible,
    "bytes": gib,
    "part": lambda part: f"{round(100 * part)}",
}
"""How the tables of a cluster write it: the unit is in the heading."""


def written(value: Value, unit: Unit, formats: Formats) -> str:
    """A value as text; ``-`` if it is unknown or empty."""
    return "-" if value is None or value == "" else formats[unit](value)
