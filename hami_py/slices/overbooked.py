"""Shares that add up to more than the whole card: nobody gets what was asked for.

A user can read the slices of the own runtime directory. Root can also read those in the directories
that other users have in ``/tmp`` and ``/dev/shm``. Others are unknown, so no message does not mean
that all fits.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from hami_py._native import LimitsPage
from hami_py.config import LIMITS, Settings
from hami_py.errors import DamagedFile
from hami_py.model import WHOLE
from hami_py.model.plan import named
from hami_py.slices.processes import LAYERS, lock_holders
from hami_py.slices.record import RECORD


def overbooked(
    settings: Settings, indices: Mapping[str, int], *, of_all_users: bool = False
) -> tuple[str, ...]:
    """Messages for the cards in ``indices`` whose shares add up to more than the whole card.

    ``of_all_users``: the slices of other users count, if this user is root.
    """
    sums: dict[str, int] = {}
    for directory in _held(settings, of_all_users=of_all_users):
        # Another user's file may be damaged, or gone by now.
        with suppress(OSError, DamagedFile):
            for row in LimitsPage.open(directory / LIMITS).rows():
                if row.share is not None and row.share < WHOLE:
                    sums[row.uuid] = sums.get(row.uuid, 0) + row.share
    too_much: dict[int, list[int]] = {}
    for uuid, total in sums.items():
        if total > WHOLE and uuid in indices:
            too_much.setdefault(total, []).append(indices[uuid])
    return tuple(
        f"the shares of the slices on {named(sorted(which))} add up to {total}%:"
        " while all of them use it, each gets less than its share"
        for total, which in too_much.items()
    )


def _held(settings: Settings, *, of_all_users: bool) -> Iterator[Path]:
    """The slices whose creator runs. Those in another slice are left out: its share counts."""
    runtimes = {settings.runtime_directory}
    if of_all_users and os.geteuid() == 0:
        places = ("/tmp", "/dev/shm")  # noqa: S108
        runtimes.update(path for place in places for path in Path(place).glob("hami-*"))
    locked = lock_holders()
    for runtime in sorted(runtimes):
        directories: list[Path] = []
        with suppress(OSError):
            directories += (runtime / "slices").iterdir()
        for directory in directories:
            with suppress(OSError):
                is_inner = (directory / LAYERS).exists()
                if not is_inner and (directory / RECORD).stat().st_ino in locked:
                    yield directory
