"""The table of ``hami ps``: slices as lines of text, and their recent use of the cards."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hami_py.cli.output import align, legible_command
from hami_py.cli.summary import card_name, exactly
from hami_py.cli.values import OF_MACHINE, approximate, duration, written
from hami_py.model import Rates, SliceCard, SliceInfo, SliceProcess, SliceState, SliceUse
from hami_py.model.columns import Column, columns
from hami_py.slices import SHOWN_ID

Key: TypeAlias = tuple[str, str, str, str]
Shares: TypeAlias = Mapping[Key, float | None]
"""The part of each card's time that slices have used since the last reading, by their key."""

COLUMNS = columns("ps")
HEADS = [column.heads["ps"] for column in COLUMNS]


@dataclass(frozen=True)
class Line:
    """One line of the table.

    Attributes:
        text: aligned with the other lines.
        state: the slice's state, on its first line.
        fullness: the used part of a card's limit; 0 if there is no limit.
    """

    text: str
    state: SliceState | None = None
    fullness: float = 0.0


def uses_of(slice_: SliceInfo) -> list[SliceUse]:
    """The slice on each of its cards; a damaged slice has one row without a card."""
    return [
        SliceUse(
            use=card,
            pod=slice_.name or slice_.id[:SHOWN_ID],
            # Names are unique among the slices of one user.
            namespace=slice_.owner or "",
            id=slice_.id,
            is_known=bool(slice_.cards),
            processes=len(slice_.processes),
            state=slice_.state,
            user=slice_.user,
            command=slice_.damage or legible_command(slice_.command),
        )
        for card in slice_.cards or (SliceCard(uuid=""),)
    ]


def rated(rates: Rates[Key], slices: Sequence[SliceInfo], now: float) -> Shares:
    """The used parts of the cards' time after a reading; ``now`` is of any monotonic clock."""
    uses = (use for slice_ in slices for use in uses_of(slice_))
    return rates.take((each.key, now, each.use.engine_time) for each in uses)


def lines(
    slices: Sequence[SliceInfo],
    processes: bool,
    shares: Shares | None = None,
    without: Collection[str] = (),
) -> Iterator[Line]:
    """The column heads, then one line per card of each slice, and optionally one per process.

    The columns whose keys are in ``without`` are left out.
    """
    shown = [column for column in COLUMNS if column.key not in without]
    uses = [
        (slice_, at, use.with_share_used((shares or {}).get(use.key)))
        for slice_ in slices
        for at, use in enumerate(uses_of(slice_))
    ]
    rows = [[column.heads["ps"] for column in shown]]
    for slice_, at, use in uses:
        # What is the same for all cards is in the first row alone.
        cells = ("" if at and column.of_slice else _cell(column, slice_, use) for column in shown)
        rows.append([*cells])
    head, *texts = align(rows)
    yield Line(head)
    for (slice_, at, use), text in zip(uses, texts, strict=True):
        limit = use.use.memory_limit
        fullness = use.use.memory_used / limit if limit else 0.0
        yield Line(text, None if at else slice_.state, fullness)
        if processes and at + 1 >= len(slice_.cards):
            yield from (Line(f"  {text}") for text in _processes(slice_))


def _cell(column: Column, slice_: SliceInfo, row: SliceUse) -> str:
    drawn = _DRAWN.get(column.key)
    return drawn(slice_, row) if drawn else written(column.value(row), column.unit, OF_MACHINE)


def _time(_: SliceInfo, row: SliceUse) -> str:
    time, share = duration(row.use.engine_time), row.share_used
    return time if share is None or not row.use.engine_time else f"{time} ({100 * share:.0f}%)"


def _count(slice_: SliceInfo, _: SliceUse) -> str:
    bypasses = sum(process.bypass is not None for process in slice_.processes)
    return f"{len(slice_.processes)}" + (f" ({bypasses} not limited)" if bypasses else "")


_DRAWN: Mapping[str, Callable[[SliceInfo, SliceUse], str]] = {
    "pod": lambda slice_, _: slice_.name or "-",
    "id": lambda slice_, _: slice_.id[:SHOWN_ID],
    "index": lambda _, row: card_name(row.use),
    "driver_memory": lambda _, row: written(row.use.driver_memory or None, "bytes", OF_MACHINE),
    "memory_limit": lambda _, row: exactly(row.use.memory_limit),
    "engine_time": _time,
    "processes": _count,
}
"""The cells that are not only their column's value."""


def _processes(slice_: SliceInfo) -> Iterator[str]:
    """One line per process: pid, user, memory and refusals on each card, and its command."""
    for process in slice_.processes:
        cards = ", ".join(_on_cards(slice_, process)) or "no GPU memory"
        if process.bypass is not None:
            cards = f"not limited: {process.bypass}"
        command = legible_command(process.command)
        yield f"{process.pid}  {process.user or '-'}  {cards}  {command}".rstrip()


def _on_cards(slice_: SliceInfo, process: SliceProcess) -> Iterator[str]:
    names = {card.uuid: card_name(card) for card in slice_.cards}
    for card in process.cards:
        driver = approximate(card.driver_memory)
        details = [
            f"driver {driver}" if card.driver_memory else "",
            f"{card.refusals} refused" if card.refusals else "",
            f"engine time {duration(card.engine_time)}" if card.engine_time else "",
            f"throttled {duration(card.throttled)}" if card.throttled else "",
            f"debt {duration(card.debt)}" if card.debt else "",
        ]
        about = ", ".join(filter(None, details))
        more = f" ({about})" if about else ""
        yield f"card {names[card.uuid]}: {approximate(card.memory_used)}{more}"
