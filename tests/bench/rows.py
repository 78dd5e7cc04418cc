"""Rows from several runs: a figure, its target, and whether the target was missed."""

import statistics
from collections.abc import Sequence

from bench.results import Row, middle_half


def row(
    command: str,
    name: str,
    values: Sequence[float],
    unit: str,
    target: float | None = None,
    *,
    better: str = "lower",
    n: int | None = None,
    note: str = "",
) -> Row:
    """The median of several runs' values, or the only value; ``n`` where a run is many samples."""
    middle = statistics.median(values)
    spread = round(middle_half(values), 3) if len(values) > 1 else None
    missed = target is not None and (middle > target if better == "lower" else middle < target)
    notes = [note] * bool(note) + ["missed"] * missed
    count = len(values) if n is None else n
    said = ", ".join(notes)
    return Row(name, round(middle, 3), unit, spread, count, target, better, command, said)


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that so many percent of them do not exceed."""
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
