"""From what was asked to an environment that a program can be started in."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from hami_py import gpu
from hami_py.config import HAMI_SLICE, Settings
from hami_py.errors import InvalidValue
from hami_py.model import MemoryRequest, plan, visible
from hami_py.slices.create import create
from hami_py.slices.current import cards, directories
from hami_py.slices.environment import compose, require_library

MAX_LEVELS = 8
"""Slices inside one another that the preload library takes: each is charged for each allocation."""


@dataclass(frozen=True)
class Prepared:
    """A slice that is ready for a program.

    Attributes:
        environment: what to start the program with.
        notes: what the user must be told, one line each.
    """

    environment: dict[str, str]
    notes: tuple[str, ...]


@contextmanager
def prepared(
    settings: Settings,
    command: Sequence[str],
    memory: MemoryRequest,
    devices: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Prepared]:
    """A new slice within those that this process is in, removed at the end.

    Args:
        settings: of this process.
        command: what will run, for people who look at the slice.
        memory: the memory limits asked for.
        devices: cards by UUID or index; none = all.
        environment: what the program would have without us; None = this process's.

    Raises:
        HamiError: no driver, no such card, or a slice cannot be made here.
        InvalidValue: more cards than a slice can hold, or more slices inside one another.
    """
    library = require_library(settings.library)
    levels = len(directories(settings)) + 1
    if levels > MAX_LEVELS:
        mend = f"run at most {MAX_LEVELS} `hami run` inside one another"
        raise InvalidValue(HAMI_SLICE, f"{levels} slices inside one another", mend)
    available = cards(settings)
    shown = None
    if devices:
        # Of all cards: whether CUDA's numbers are known depends also on those that are not ours.
        shown = visible(gpu.cards(), settings.visible_devices, settings.device_order)
    planned = plan(available, memory, devices, shown)
    with create(settings.runtime_directory, planned.limits, command) as directory:
        base = settings.environment if environment is None else environment
        slices = [*settings.slices, directory]
        yield Prepared(compose(base, library, slices, planned.devices), planned.notes)
