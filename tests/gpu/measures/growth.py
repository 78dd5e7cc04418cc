"""What the groups of memory measures share: rows, and NVML's "used" as the figure.

A group is independent: a call that a driver refuses ends its step with a text, and the other steps
and groups go on.
"""

import statistics
import time
from collections.abc import Callable, Iterator

from bench.results import Row, middle_half
from gpu.card import Card

#: How often a group is measured, and for how many seconds it is measured again.
REPEATS, SECONDS = 3, 1.0

#: One run's numbers: name, value, unit. A text is something that could not be measured.
Sample = Iterator[tuple[str, float, str] | str]

FAILURES = (AssertionError, OSError, KeyError, ValueError)


class Growth:
    """The growth of NVML's "used" since the last call."""

    def __init__(self, card: Card) -> None:
        self._card = card
        self._last = card.used()

    def __call__(self) -> int:
        now = self._card.used()
        grown, self._last = now - self._last, now
        return grown


def settle(card: Card) -> None:
    """Wait until the memory of ended processes is free: no change in 0.2 s, at most 3 s."""
    until = time.monotonic() + 3.0
    before = None
    while (now := card.used()) != before and time.monotonic() < until:
        before = now
        time.sleep(0.2)


def tried(step: str, sample: Sample) -> Sample:
    """The sample; a failure ends it with a text, so that the group's next step can follow."""
    try:
        yield from sample
    except FAILURES as error:
        yield f"{step}: {type(error).__name__}: {error}"


def rows(group: Callable[[Card], Sample], card: Card, command: str) -> Iterator[list[Row] | str]:
    """The group's rows, and what it could not measure."""
    found: dict[tuple[str, str], list[float]] = {}
    failed: dict[str, None] = {}
    start = time.monotonic()
    for _ in range(REPEATS):
        for one in tried(group.__name__, group(card)):
            if isinstance(one, str):
                failed[one] = None
            else:
                name, value, unit = one
                found.setdefault((name, unit), []).append(value)
        if failed or time.monotonic() - start > SECONDS:
            break
    if found:
        yield [_row(name, unit, values, command) for (name, unit), values in found.items()]
    yield from failed


def _row(name: str, unit: str, values: list[float], command: str) -> Row:
    spread = round(middle_half(values), 3) if len(values) > 1 else None
    middle = round(statistics.median(values), 3)
    return Row(name, middle, unit, spread, len(values), None, "lower", command)
