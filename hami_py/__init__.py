"""Share one NVIDIA GPU between programs, with memory limits that hold.

    >>> import hami_py as hami
    >>> hami.limits().source        # outside any slice
    'none'

Sizes are whole numbers with a unit (``"4GiB"``, ``"4096MiB"``), cards are named by UUID or by their
index in ``hami.devices()``. What this package raises is a ``HamiError``.
See docs/configuration.md.
"""

import subprocess
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from hami_py import config, slices
from hami_py.errors import (
    CannotRun,
    DamagedFile,
    DriverError,
    HamiError,
    InvalidValue,
    NoDevice,
    NoDriver,
    StateError,
    UnknownCard,
    UnsupportedPlatform,
)
from hami_py.model import (
    Card,
    CardLimit,
    CardUsage,
    Limits,
    ProcessUsage,
    Usage,
    parse_sizes,
    refuse_gpucores,
)

__all__ = [
    "CannotRun",
    "Card",
    "CardLimit",
    "CardUsage",
    "DamagedFile",
    "DriverError",
    "HamiError",
    "InvalidValue",
    "Limits",
    "NoDevice",
    "NoDriver",
    "ProcessUsage",
    "StateError",
    "UnknownCard",
    "UnsupportedPlatform",
    "Usage",
    "__version__",
    "devices",
    "limits",
    "run",
    "usage",
]

__version__ = "0.1.0"


def devices() -> list[Card]:
    """The cards of this machine: physical GPUs, and MIG slices where a GPU is cut up.

    Inside a slice, its cards with the memory that the slice may use.

    Raises:
        NoDriver: there is no working driver.
        NoDevice: there is no card.
        DriverError: a card does not answer.
        StateError: this process is in a slice that cannot be read.
    """
    return slices.cards(config.read())


def limits() -> Limits:
    """The limits that hold for this process.

    Where only HAMi's variables set them, the cards of this machine are looked at.

    Raises:
        StateError: this process is in a slice that cannot be read.
        InvalidValue: one of HAMi's variables cannot be understood.
        NoDriver: there is no working driver to ask for the cards.
        NoDevice: there is no card.
        DriverError: a card does not answer.
        UnknownCard: which cards ``CUDA_VISIBLE_DEVICES`` means cannot be told here.
    """
    return slices.limits(config.read())


def usage() -> Usage:
    """What the slice that this process is in uses, in bytes; no cards where it is in none.

        for card in hami.usage().cards:
            print(card.uuid, card.memory_used, "of", card.memory_limit)

    Raises:
        StateError: this process is in a slice that cannot be read.
        InvalidValue: one of HAMi's variables cannot be understood.
        NoDriver, NoDevice, DriverError, UnknownCard: as ``limits()``.
    """
    return slices.usage(config.read())


def run(
    command: Sequence[str],
    *,
    gpumem: str | Mapping[str, str] | None = None,
    gpucores: str | int | None = None,
    devices: Sequence[str] = (),
    **options: Any,  # noqa: ANN401
) -> subprocess.CompletedProcess[Any]:
    """Run a program in a new slice and wait for it, like ``subprocess.run``.

        hami.run(["python", "train.py"], gpumem="4GiB", check=True)
        hami.run(["python", "train.py"], gpumem={"0": "4GiB", "1": "8GiB"}, devices=["1", "0"])

    Args:
        command: program and arguments.
        gpumem: one size for every card, or sizes by card; a card that is not named has no limit.
            A size above the card's own is lowered to it, with a ``UserWarning``.
        gpucores: refused: the compute share is not enforced yet.
        devices: cards that the program shall see, by UUID or index, in its order; none = all.
        options: everything else that ``subprocess.run`` takes, ``env`` included.

    Raises:
        InvalidValue: a size or share that is not understood, or cannot be held; too many cards,
            or slices inside one another.
        HamiError: no driver, no such card, or no slice can be made here.
        Exception: whatever ``subprocess.run`` raises.
    """
    refuse_gpucores(gpucores)
    memory = parse_sizes(gpumem)
    settings = config.read()
    base = options.pop("env", None)
    with slices.prepared(settings, command, memory, devices, base) as prepared:
        for note in prepared.notes:
            warnings.warn(note, stacklevel=2)
        return subprocess.run(command, env=prepared.environment, **options)  # noqa: PLW1510
