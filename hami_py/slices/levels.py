"""A slice's two files, read: its limits and what is held under them.

Slices nest. Each one around a program is a level; what holds is the lowest limit and the least that
is left, over all of them (docs/architecture.md, "How the library finds its slice").
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hami_py._native import Account, HamiLimit, LimitRow, LimitsPage, ProcessUse, same_card
from hami_py.config import LIMITS
from hami_py.errors import DamagedFile, StateError
from hami_py.model import (
    WHOLE,
    CardLimit,
    CardUsage,
    ProcessUsage,
    lowest,
    lowest_priority,
    lowest_share,
)
from hami_py.slices.hold import ACCOUNT


class Times(NamedTuple):
    """Engine time and what goes with it, in seconds."""

    engine_time: float
    throttled: float
    debt: float


@dataclass(frozen=True)
class Level:
    """One slice; row i of the page is row i of the account.

    Attributes:
        rows: what may be used.
        used: bytes that are.
        processes: by whom.
        refusals: requests refused, also to processes that are gone.
        engine_ns: nanoseconds of engine time, also of processes that are gone.
        throttled_ns: nanoseconds for which launches had to wait, also of processes that are gone.
    """

    rows: tuple[CardLimit, ...]
    used: list[int]
    processes: list[ProcessUse]
    refusals: list[int]
    engine_ns: list[int]
    throttled_ns: list[int]

    def index(self, uuid: str) -> int | None:
        """The card's row, where this level has it."""
        return next((i for i, row in enumerate(self.rows) if same_card(row.uuid, uuid)), None)

    def times(self, i: int) -> Times:
        """Of a row's card, all processes together."""
        debt = sum(process.debt_ns[i] for process in self.processes if process.alive)
        return Times(*map(seconds, (self.engine_ns[i], self.throttled_ns[i], debt)))


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


def _read(directory: Path, fix: str) -> Level:
    try:
        page = LimitsPage.open(directory / LIMITS)
        account = Account.open(directory / ACCOUNT)
        seen = account.snapshot()
        rows = tuple(map(limit_of, page.rows()))
    except (OSError, DamagedFile) as error:
        why = error.why if isinstance(error, DamagedFile) else error.strerror or str(error)
        raise StateError(f"slice {directory}", why, fix) from error
    return Level(
        rows, seen.memory_used, seen.processes, seen.refusals, seen.used_ns, seen.throttled_ns
    )


def combined(
    levels: Sequence[Level], variables: Mapping[str, HamiLimit] | None = None
) -> Iterator[CardLimit]:
    """The cards that every level has, each with its lowest limits.

    Args:
        levels: the slices, outermost first; at least one.
        variables: what HAMi's variables say by card.
    """
    for row in levels[-1].rows:
        found = [(level, level.index(row.uuid)) for level in levels]
        same = [level.rows[i] for level, i in found if i is not None]
        if len(same) == len(levels):
            said = (variables or {}).get(row.uuid, HamiLimit())
            memory = lowest([said.memory, *(other.memory for other in same)])
            share, mode = lowest_share(
                [(said.share, said.mode), *((other.share, other.mode) for other in same)]
            )
            priorities = [other.priority for other in same]
            priority = lowest_priority([*priorities, said.priority or "high"])
            yield CardLimit(row.uuid, memory, share, mode, priority)


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
    used, refusals, processes, times = 0, 0, [], Times(0.0, 0.0, 0.0)
    # Outermost first, so that what is kept of each is the innermost level's.
    for level in levels:
        i = level.index(limit.uuid)
        if i is None:
            continue
        used, refusals, times = level.used[i], level.refusals[i], level.times(i)
        # A variable binds the innermost slice alone; in those around it others live as well.
        memory = lowest([level.rows[i].memory, variable if level is levels[-1] else None])
        left.append(None if memory is None else max(memory - used, 0))
        processes = [
            ProcessUsage(
                process.pid,
                process.alive,
                process.memory[i],
                process.refusals[i],
                *times_of(process, i),
            )
            for process in level.processes
            if has_touched(process, i)
        ]
    held = (limit.uuid, limit.memory, used, lowest(left), refusals, tuple(processes))
    return CardUsage(*held, limit.share, limit.mode, limit.priority, *times)


def limit_of(row: LimitRow) -> CardLimit:
    """What a row of a limits page says; the whole of a card's time is no limit."""
    share = None if row.share == WHOLE else row.share
    return CardLimit(row.uuid, row.memory_limit, share, row.mode, row.priority)


def has_touched(process: ProcessUse, i: int) -> bool:
    """It holds memory of this row's card, was refused some, has engine time, or has waited."""
    said = (process.memory, process.refusals, process.used_ns, process.throttled_ns)
    return any(values[i] for values in said)


def times_of(process: ProcessUse, i: int) -> Times:
    """Of a process on this row's card."""
    return Times(*map(seconds, (process.used_ns[i], process.throttled_ns[i], process.debt_ns[i])))


def seconds(nanoseconds: int) -> float:
    """As the package's results have it."""
    return nanoseconds / 1e9
