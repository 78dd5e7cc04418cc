"""Other limits for a slice that is there."""

from pathlib import Path

from hami_py import gpu
from hami_py._native import LimitsPage
from hami_py.config import LIMITS, Settings
from hami_py.errors import DamagedFile, StateError
from hami_py.model import LimitRequest, resized
from hami_py.slices import coordinator
from hami_py.slices.current import directories
from hami_py.slices.levels import limit_of
from hami_py.slices.registry import hold_named
from hami_py.slices.runtime import locked, usable


def resize(settings: Settings, directory: Path, asked: LimitRequest) -> tuple[str, ...]:
    """Set other limits; what is not asked for stays, and all are in force when this returns.

    Returns:
        What the user must be told, one line each.

    Raises:
        InvalidValue: nothing is asked for, or a card is named twice.
        UnknownCard: the slice has no such card.
        NoDriver, NoDevice, DriverError: the cards cannot be asked.
        StateError: the page cannot be read or written.
    """
    # Who changes one thing keeps the others, so nobody else may change them meanwhile.
    with usable(directory), locked(directory):
        try:
            page = LimitsPage.open(directory / LIMITS)
            rows = tuple(map(limit_of, page.rows()))
            whole = not directories(settings)
            wanted, notes = resized(gpu.cards(), rows, asked, whole=whole)
            changed = [row for row in wanted if row not in rows]
            page.set_memory_limits({row.uuid: row.memory for row in changed})
            page.set_regimes({row.uuid: (row.share, row.mode, row.priority) for row in changed})
        except DamagedFile as error:
            fix = f"remove it with `hami rm {directory.name}`, and make another"
            raise StateError(f"slice {directory.name}", error.why, fix) from error
    return (*notes, *coordinator.ensure(settings, directory))


def resize_named(settings: Settings, name: str, asked: LimitRequest) -> tuple[str, ...]:
    """The same for a slice by name or id.

    Raises:
        UnknownSlice: there is none, or more than one is meant.
        HamiError: as ``resize``.
    """
    held = hold_named(settings, name)
    try:
        return resize(settings, held.directory, asked)
    finally:
        held.release()
