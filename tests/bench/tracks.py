"""Shares of a card's time, from how much work was done when.

Pure arithmetic: it does not know whether the work was counted by a program, by the stub's ledger or
by a card. Times are seconds, shares are percent of the card's time, errors are in points.
"""

import bisect
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Track:
    """Work done so far, in seconds of the card's time, at instants that only go up."""

    instants: tuple[float, ...]
    work: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.instants) < 2 or len(self.instants) != len(self.work):
            raise ValueError(f"a track has two points or more: {self.instants} {self.work}")

    @property
    def start(self) -> float:
        return self.instants[0]

    @property
    def end(self) -> float:
        return self.instants[-1]

    def at(self, instant: float) -> float:
        """The work done by then; between two points it is as if it had been done evenly."""
        after = bisect.bisect_right(self.instants, instant)
        if after == 0:
            return self.work[0]
        if after == len(self.instants):
            return self.work[-1]
        before = after - 1
        passed = instant - self.instants[before]
        span = self.instants[after] - self.instants[before]
        return self.work[before] + (self.work[after] - self.work[before]) * passed / span

    def share(self, start: float, end: float) -> float:
        """Percent of the time from ``start`` to ``end``."""
        return 100 * (self.at(end) - self.at(start)) / (end - start)

    def windows(self, start: float, end: float, length: float = 1.0) -> list[float]:
        """The shares of one window of so many seconds after the other; the rest is left out."""
        count = math.floor((end - start) / length + 1e-9)
        return [
            self.share(start + index * length, start + (index + 1) * length)
            for index in range(count)
        ]

    def completions(self, start: float, end: float) -> tuple[float, float]:
        """The first and the last instant in between at which work was seen to be done.

        From one completion to another there are whole kernels, with all that was waited for them;
        between instants that mean nothing to the program a kernel of 50 ms is half there.
        """
        seen = [
            instant
            for instant, before, after in zip(
                self.instants[1:], self.work, self.work[1:], strict=False
            )
            if after > before and start <= instant <= end
        ]
        return (seen[0], seen[-1]) if len(seen) > 1 else (start, end)

    def scaled(self, factor: float) -> "Track":
        """The same, with its work so many times as large."""
        return Track(self.instants, tuple(value * factor for value in self.work))


def together(tracks: Sequence[Track]) -> Track:
    """The work of several programs as one."""
    if len(tracks) == 1:
        return tracks[0]
    instants = sorted({instant for track in tracks for instant in track.instants})
    return Track(
        tuple(instants),
        tuple(sum(track.at(instant) for track in tracks) for instant in instants),
    )


def common(tracks: Sequence[Track], settling: float = 0.0) -> tuple[float, float]:
    """From when the last has begun, and ``settling`` seconds more, to when the first ends."""
    start = max(track.start for track in tracks) + settling
    end = min(track.end for track in tracks)
    if start >= end:
        raise ValueError(f"there is no time at which all of them run: {start} to {end}")
    return start, end


def jain(values: Sequence[float]) -> float:
    """Jain's fairness index: 1 where all are equal, 1/n where one has everything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest of the values that so many percent of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def steps(track: Track, length: float) -> Iterator[tuple[float, float]]:
    """For a plot: the middle of each window, in seconds from the start, and its share."""
    for index, share in enumerate(track.windows(track.start, track.end, length)):
        yield (index + 0.5) * length, share
