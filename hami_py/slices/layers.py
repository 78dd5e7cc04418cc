"""Reading a slice's limits page and account.

Slices nest. Each slice around a program is a *layer*. The lowest limit of all layers is effective,
and the least that is left in any of them (docs/architecture.md, "How the library finds its slice").
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hami_py._native import Account, AccountSnapshot, HamiLimit, LimitRow, LimitsPage, same_card
from hami_py.config import ACCOUNT, LIMITS
from hami_py.errors import DamagedFile, StateError
from hami_py.model import (
    WHOLE,
    CardLimit,
    CardUsage,
    ProcessUsage,
    SliceCard,
    lowest,
    lowest_priority,
    lowest_share,
    slice_card,
    use_of,
)


@dataclass(frozen=True)
class Layer:
    """One slice as read; row i of the limits page is row i of the account.

    Attributes:
        page: the rows as the limits page has them.
    """

    rows: tuple[CardLimit, ...]
    page: tuple[LimitRow, ...]
    account: AccountSnapshot

    def index(self, uuid: str) -> int | None:
        """The row of a card, if this layer has the card."""
        return next((i for i, row in enumerate(self.rows) if same_card(row.uuid, uuid)), None)

    def cards(self, indices: Mapping[str, int]) -> tuple[SliceCard, ...]:
        """The limits and the use of its cards; ``indices`` are those of the cards, by UUID."""
        return tuple(
            slice_card(self.account, i, row, indices.get(row.uuid))
            for i, row in enumerate(self.rows)
        )


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
    return Layer(rows, page_rows, seen)


def combined(
    layers: Sequence[Layer], variables: Mapping[str, HamiLimit] | None = None
) -> Iterator[CardLimit]:
    """The effective limits on the cards that every layer has; layers are outermost first."""
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

    ``free_on_card`` is in bytes, None = unknown; ``variable`` is the limit of HAMi's variables.
    """
    left = [free_on_card, limit.memory]
    use = slice_card(None, 0, limit)
    processes: tuple[ProcessUsage, ...] = ()
    # Outermost first: after the loop the variables have the values of the innermost layer.
    for layer in layers:
        i = layer.index(limit.uuid)
        if i is None:
            continue
        use = slice_card(layer.account, i, limit)
        # A variable limits the innermost slice only; the outer ones have other programs too.
        memory = lowest([layer.rows[i].memory, variable if layer is layers[-1] else None])
        left.append(None if memory is None else max(memory - use.memory_used, 0))
        processes = tuple(_process_usages(layer.account, i, limit))
    return CardUsage(**vars(use), memory_free=lowest(left), processes=processes)


def _process_usages(account: AccountSnapshot, row: int, limit: CardLimit) -> Iterator[ProcessUsage]:
    for process in account.processes:
        if (use := use_of(process, row, limit)) is not None:
            yield ProcessUsage(**vars(use), pid=process.pid, alive=process.alive)


def limit_of(row: LimitRow) -> CardLimit:
    """The limit in a row of a limits page; a share of 100 is no limit."""
    share = None if row.share == WHOLE else row.share
    return CardLimit(row.uuid, row.memory_limit, share, row.mode, row.priority)
