"""Prints the use of slices: a line for one slice, and a table of ended ones."""

from collections.abc import Iterator, Sequence

from hami_py._native import format_memory
from hami_py.cli.output import align, legible_command
from hami_py.cli.values import approximate, duration
from hami_py.model import SliceCard, Summary
from hami_py.slices import SHOWN_ID

HEADS = (
    *("NAME", "ID", "ENDED", "AFTER", "CARD", "PEAK", "LIMIT", "REFUSED", "THROTTLED"),
    *("GPU TIME", "SHARE", "COMMAND"),
)


def line(summary: Summary) -> str:
    """One line about all cards that the slice has used."""
    parts = [_part(summary, card) for card in summary.cards if _is_used(card)]
    return "; ".join(parts) or "no GPU memory or time was used"


def table(summaries: Sequence[Summary]) -> Iterator[str]:
    """The column heads, then one line per card of each slice that has used it."""
    rows = [cells for summary in summaries for cells in _rows(summary)]
    yield from align([HEADS, *rows])


def exactly(limit: int | None) -> str:
    """A limit on memory; ``-`` if there is none."""
    return "-" if limit is None else format_memory(limit)


def card_name(card: SliceCard) -> str:
    """The index of a card, or the beginning of its UUID; ``-`` if it has none."""
    return (card.uuid[:SHOWN_ID] or "-") if card.index is None else str(card.index)


def _part(summary: Summary, card: SliceCard) -> str:
    limit = "" if card.memory_limit is None else f" of {format_memory(card.memory_limit)}"
    parts = [f"peak {approximate(card.memory_peak)}{limit}", f"{card.refusals} refused"]
    if card.share is not None or card.engine_time or card.throttled:
        share = "" if card.share is None else f" of {card.share}%"
        parts += [
            f"throttled {_time(card.throttled)}",
            f"used {_used(summary, card)}{share} of the time",
        ]
    return f"card {card_name(card)}: {', '.join(parts)}"


def _rows(summary: Summary) -> Iterator[tuple[str, ...]]:
    cards = [card for card in summary.cards if _is_used(card)]
    # Date and time, in UTC, to the minute.
    ended = f"{summary.ended[:16].replace('T', ' ')}Z"
    about = (summary.name or "-", summary.id[:SHOWN_ID], ended, _time(summary.seconds))
    command = legible_command(summary.command)
    if not cards:
        yield (*about, *("-",) * 7, command)
    for number, card in enumerate(cards):
        of_card = (
            card_name(card),
            approximate(card.memory_peak),
            exactly(card.memory_limit),
            str(card.refusals),
            duration(card.throttled),
            _used(summary, card) if card.engine_time else "-",
            "-" if card.share is None else f"{card.share}%",
        )
        yield (*about, *of_card, command) if number == 0 else ("",) * 4 + (*of_card, "")


def _is_used(card: SliceCard) -> bool:
    return bool(card.memory_peak or card.refusals or card.engine_time or card.throttled)


def _used(summary: Summary, card: SliceCard) -> str:
    return f"{100 * card.engine_time / max(summary.seconds, card.engine_time, 1e-3):.1f}%"


def _time(seconds: float) -> str:
    return duration(seconds) if seconds else "0s"
