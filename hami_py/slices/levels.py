"""A slice's two files, read: its limits and what is held under them.

Slices nest. Each one around a program is a level; what holds is the lowest limit and the least that
is left, over all of them (docs/architecture.md, "How the library finds its slice").
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hami_py._native import Account, LimitsPage, ProcessUse, same_card
from hami_py.errors import DamagedFile, StateError
from hami_py.model import CardLimit, CardUsage, ProcessUsage, lowest
from hami_py.slices.hold import ACCOUNT, LIMITS


@dataclass(frozen=True)
class Level:
    """One slice; row i of the page is row i of the account."""

    rows: tuple[CardLimit, ...]
    used: list[int]
    processes: list[ProcessUse]
    refusals: list[int]

    def index(self, uuid: str) -> int | None:
        """The card's row, where this level has it."""
        return next((i for i, row in enumerate(self.rows) if same_card(row.uuid, uuid)), None)


def read_level(directory: Path) -> Level:
    """A slice around this process, as it is now.

    Raises:
        StateError: it cannot be read.
    """
    return _read(directory, "start the program again with `hami run`, or unset HAMI_SLICE")


def read_from_outside(directory: Path) -> Level:
    """A slice of this user, as it is now; dead processes stand in it until they are struck off.

    Raises:
        StateError: it cannot be read.
    """
    return _read(directory, f"remove it with `hami rm {directory.name}`, and make another")


def strike_off_the_dead(directory: Path) -> None:
    """Take back what dead processes hold, as the next request would.

    To do it the account is mapped, so this is for the outside: a process of the slice that cut the
    file short in this instant would end us.
    """
    # What is wrong with it is said by the one that reads it.
    with suppress(OSError, DamagedFile):
        Account.open(directory / ACCOUNT).reclaim()


def _read(directory: Path, mend: str) -> Level:
    try:
        page = LimitsPage.open(directory / LIMITS)
        account = Account.open(directory / ACCOUNT)
        seen = account.snapshot()
        rows = tuple(CardLimit(row.uuid, row.memory_limit, row.share) for row in page.rows())
    except (OSError, DamagedFile) as error:
        why = error.why if isinstance(error, DamagedFile) else error.strerror or str(error)
        raise StateError(f"slice {directory}", why, mend) from error
    return Level(rows, seen.memory_used, seen.processes, seen.refusals)


def combined(
    levels: Sequence[Level], variables: Mapping[str, int | None] | None = None
) -> Iterator[CardLimit]:
    """The cards that every level has, each with its lowest limit.

    Args:
        levels: the slices, outermost first; at least one.
        variables: HAMi's limits in bytes by card.
    """
    for row in levels[-1].rows:
        found = [(level, level.index(row.uuid)) for level in levels]
        same = [level.rows[i] for level, i in found if i is not None]
        if len(same) == len(levels):
            variable = (variables or {}).get(row.uuid)
            memory = lowest([*(other.memory for other in same), variable])
            yield CardLimit(row.uuid, memory, lowest(other.share for other in same))


def card_usage(
    limit: CardLimit,
    levels: Sequence[Level],
    free_on_card: int | None,
    variable: int | None = None,
) -> CardUsage:
    """What the innermost level uses on one card, and what can still be had there.

    Args:
        limit: what holds on the card.
        levels: the slices, outermost first.
        free_on_card: bytes; None = not known.
        variable: HAMi's limit in bytes; None = none.
    """
    left = [free_on_card, limit.memory]
    used, refusals, processes = 0, 0, []
    # Outermost first, so that what is kept of each is the innermost level's.
    for level in levels:
        i = level.index(limit.uuid)
        if i is None:
            continue
        used, refusals = level.used[i], level.refusals[i]
        # A variable binds the innermost slice alone; in those around it others live as well.
        memory = lowest([level.rows[i].memory, variable if level is levels[-1] else None])
        left.append(None if memory is None else max(memory - used, 0))
        processes = [
            ProcessUsage(process.pid, process.alive, process.memory[i], process.refusals[i])
            for process in level.processes
            if process.memory[i] or process.refusals[i]
        ]
    return CardUsage(limit.uuid, limit.memory, used, lowest(left), refusals, tuple(processes))
