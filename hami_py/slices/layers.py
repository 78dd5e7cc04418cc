"""Reading a slice's limits page and account.

Slices nest. Each slice around a program is a *layer*. The lowest limit of all layers is effective,
and the least that is left in any of them (docs/architecture.md, "How the library finds its slice").
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hami_py._native import Account, HamiLimit, LimitRow, LimitsPage, ProcessUse, same_card
from hami_py.config import ACCOUNT, LIMITS
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


class Times(NamedTuple):
    """Engine time, throttled time and debt, in seconds."""

    engine_time: float
    throttled: float
    debt: float


@dataclass(frozen=True)
class Layer:
    """One slice as read; row i of the limits page is row i of the account.

    Attributes:
        rows: the limits.
        used: bytes that a request finds in use, by row. The memory of a dead process does not
            count while a request waits for it.
        measured: the part of ``used``, by row, that no process is charged and that the driver was
            measured to hold for them.
        processes: the processes in the account.
        refusals: number of refused requests by row, including those of ended processes.
        engine_ns: nanoseconds of engine time by row, including those of ended processes.
        throttled_ns: nanoseconds in which launches had to wait, by row, including those of ended
            processes.
        page: the rows as the limits page has them.
        peak: the most of ``used`` since the slice was created, by row.
    """

    rows: tuple[CardLimit, ...]
    used: list[int]
    measured: list[int]
    processes: list[ProcessUse]
    refusals: list[int]
    engine_ns: list[int]
    throttled_ns: list[int]
    page: tuple[LimitRow, ...]
    peak: Sequence[int] = ()

    def index(self, uuid: str) -> int | None:
        """The row of a card, if this layer has the card."""
        return next((i for i, row in enumerate(self.rows) if same_card(row.uuid, uuid)), None)

    def driver_memory(self, i: int) -> int:
        """Bytes of a row that the driver has taken for itself, for all living processes."""
        living = [process for process in self.processes if process.alive]
        return self.measured[i] + sum(process.driver_memory[i] for process in living)

    def times(self, i: int) -> Times:
        """The times of all processes on a row's card."""
        debt = sum(process.debt_ns[i] for process in self.processes if process.alive)
        return Times(*map(seconds, (self.engine_ns[i], self.throttled_ns[i], debt)))


def read_layer(directory: Path) -> Layer:
    """Read a slice that this process is in.

    Raises:
        StateError: it cannot be read.
    """
    return _read(directory, "start the program again with `hami run`")


def read_from_outside(directory: Path) -> Layer:
    """Read a slice of this user.

    Raises:
        StateError: it cannot be read.
    """
    return _read(directory, f"remove it with `hami rm {directory.name}`, and create another")


def reclaim_dead(directory: Path) -> None:
    """Reclaim the entries of dead processes, as the next request in the slice would.

    This maps the account, so only processes outside the slice may call it: if a process of the
    slice truncated the file at that moment, the caller would die of SIGBUS.
    """
    # A damaged account is reported by the functions that read it.
    with suppress(OSError, DamagedFile):
        Account.open(directory / ACCOUNT).reclaim()


def _read(directory: Path, fix: str) -> Layer:
    try:
        page = LimitsPage.open(directory / LIMITS)
        account = Account.open(directory / ACCOUNT)
        seen = account.snapshot()
        page_rows = tuple(page.rows())
        rows = tuple(map(limit_of, page_rows))
    except (OSError, DamagedFile) as error:
        why = error.why if isinstance(error, DamagedFile) else error.strerror or str(error)
        raise StateError(f"slice {directory}", why, fix) from error
    times = (seen.used_ns, seen.throttled_ns)
    held = (seen.memory_used, seen.measured_memory)
    peak = seen.memory_peak
    return Layer(rows, *held, seen.processes, seen.refusals, *times, page_rows, peak)


def combined(
    layers: Sequence[Layer], variables: Mapping[str, HamiLimit] | None = None
) -> Iterator[CardLimit]:
    """The effective limits on the cards that every layer has.

    Args:
        layers: the slices, outermost first; at least one.
        variables: the limits of HAMi's variables, by card.
    """
    for row in layers[-1].rows:
        found = [(layer, layer.index(row.uuid)) for layer in layers]
        same = [layer.rows[i] for layer, i in found if i is not None]
        if len(same) == len(layers):
            variable = (variables or {}).get(row.uuid, HamiLimit())
            memory = lowest([variable.memory, *(other.memory for other in same)])
            share, mode = lowest_share(
                [(variable.share, variable.mode), *((other.share, other.mode) for other in same)]
            )
            priorities = [other.priority for other in same]
            priority = lowest_priority([*priorities, variable.priority or "high"])
            yield CardLimit(row.uuid, memory, share, mode, priority)


def card_usage(
    limit: CardLimit,
    layers: Sequence[Layer],
    free_on_card: int | None,
    variable: int | None = None,
) -> CardUsage:
    """The usage of the innermost layer on one card, and how much is left there.

    Args:
        limit: the effective limit on the card.
        layers: the slices, outermost first.
        free_on_card: bytes; None = unknown.
        variable: the limit of HAMi's variables in bytes; None = no limit.
    """
    left = [free_on_card, limit.memory]
    used, refusals, processes, times = 0, 0, [], Times(0.0, 0.0, 0.0)
    driver_memory = 0
    # Outermost first: after the loop the variables have the values of the innermost layer.
    for layer in layers:
        i = layer.index(limit.uuid)
        if i is None:
            continue
        used, refusals, times = layer.used[i], layer.refusals[i], layer.times(i)
        driver_memory = layer.driver_memory(i)
        # A variable limits the innermost slice only; the outer ones have other programs too.
        memory = lowest([layer.rows[i].memory, variable if layer is layers[-1] else None])
        left.append(None if memory is None else max(memory - used, 0))
        processes = [
            ProcessUsage(
                process.pid,
                process.alive,
                process.memory[i],
                process.refusals[i],
                *times_of(process, i),
                process.driver_memory[i],
            )
            for process in layer.processes
            if has_used(process, i)
        ]
    memory_usage = (limit.uuid, limit.memory, used, lowest(left), refusals, tuple(processes))
    return CardUsage(*memory_usage, limit.share, limit.mode, limit.priority, *times, driver_memory)


def limit_of(row: LimitRow) -> CardLimit:
    """The limit in a row of a limits page; a share of 100 is no limit."""
    share = None if row.share == WHOLE else row.share
    return CardLimit(row.uuid, row.memory_limit, share, row.mode, row.priority)


def has_used(process: ProcessUse, i: int) -> bool:
    """Whether a process has memory, refusals, engine time or throttled time on a row's card."""
    values = (process.memory, process.refusals, process.used_ns, process.throttled_ns)
    return any(each[i] for each in values)


def times_of(process: ProcessUse, i: int) -> Times:
    """The times of a process on a row's card."""
    return Times(*map(seconds, (process.used_ns[i], process.throttled_ns[i], process.debt_ns[i])))


def seconds(nanoseconds: int) -> float:
    """Nanoseconds as seconds, the unit of the package's results."""
    return nanoseconds / 1e9
