"""Rows of the scheduler's suite."""

from collections.abc import Sequence
from functools import partial

from bench import rows
from bench.results import Row
from bench.rows import percentile

COMMAND = "make bench-scheduler"

row = partial(rows.row, COMMAND)


def times(name: str, runs: Sequence[Sequence[float]], target_ms: float | None = None) -> list[Row]:
    """Median and 99th percentile of runs of samples in ms; a target is the latter's."""
    n = sum(map(len, runs))
    return [
        row(f"{name}, p50", [percentile(run, 50) for run in runs], "ms", n=n),
        row(f"{name}, p99", [percentile(run, 99) for run in runs], "ms", target_ms, n=n),
    ]
