"""Judges the results of a scenario, as rows of the results.

``share_error/<workload>/<slices>/<shares>``: by how many points the worst member misses its part.
Further rows are written where they are meaningful: `windows_p95` (95 of 100 one-second windows
deviate by at most so many points), `work_kept` (the work of all members together, in percent of the
card's work without us), `jain` (fairness between equal members), `slowdown` (how much longer a
burst takes that fits into the share) and `demand` (the part of the card that the program uses
without us).
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.loads import BURSTY, Scenario, Workload
from bench.results import Row, middle_half
from bench.stage import Ran
from bench.tracks import Track, common, jain, percentile, together

#: Longer kernels do not fit into one-second windows evenly.
LONGEST_IN_WINDOWS_US = 5_000

#: Points by which a share is more than what a program wants, so that nothing should slow it down.
LEAST_ROOM = 1.0


@dataclass(frozen=True)
class Judge:
    """Turns what programs did into rows."""

    command: str
    whole: Mapping[str, float] | None
    """By workload: seconds of work that it gets done in a second of the whole card. None: work is
    the engine's own time."""
    binding: bool = True
    """Whether the targets hold here; else the numbers only are reported."""
    settling: float = 0.0
    """Seconds at the beginning that do not count."""

    def track(self, workload: Workload, ran: Sequence[Ran]) -> Track:
        """Seconds of the card's time that a member had."""
        track = together([each.track for each in ran])
        return track.scaled(1 / self.whole[workload.unit.name]) if self.whole else track

    def tracks(self, scenario: Scenario, played: Sequence[Sequence[Ran]]) -> list[Track]:
        """The same for each member."""
        return [
            self.track(member.workload, ran)
            for member, ran in zip(scenario.members, played, strict=True)
        ]

    def rows(self, scenario: Scenario, played: Sequence[Sequence[Ran]]) -> list[Row]:
        """Everything that can be said of one scenario."""
        members, tracks = scenario.members, self.tracks(scenario, played)
        judged = [tracks[place] for place in scenario.busy]
        expected = [members[place].expected or 0.0 for place in scenario.busy]
        start, end = common(judged, self.settling)
        shares = [track.share(*track.completions(start, end)) for track in judged]
        errors = [abs(share - wanted) for share, wanted in zip(shares, expected, strict=True)]
        said = ", ".join(
            f"{share:.2f} of {wanted:g}" for share, wanted in zip(shares, expected, strict=True)
        )
        name = scenario.name
        rows = [self._row(f"share_error/{name}", max(errors), "points", 1, note=said)]
        if scenario.longest_us <= LONGEST_IN_WINDOWS_US and end - start >= 5:
            off = [
                abs(window - wanted)
                for track, wanted in zip(judged, expected, strict=True)
                for window in track.windows(start, end)
            ]
            target = 2.0 if len(members) == 1 else None
            rows.append(
                self._row(f"windows_p95/{name}", percentile(off, 95), "points", target, n=len(off))
            )
        if len(members) > 1 and scenario.lends:
            kept = sum(shares)
            rows.append(self._row(f"work_kept/{name}", kept, "percent", 98.5, better="higher"))
        equals = _equals(scenario, shares, played, start, end)
        if equals:
            index = jain(equals)
            rows.append(self._row(f"jain/{name}", index, "", 0.999, better="higher", n=len(equals)))
        return rows

    def demand(self, workload: Workload, percents: Sequence[float]) -> Row:
        """The part of the card that the program uses without us."""
        value = statistics.mean(percents)
        spread = round(middle_half(percents), 4) if len(percents) > 1 else None
        name = f"demand/{workload.name}/1/none"
        return Row(
            *(name, round(value, 4), "percent", spread, len(percents), None, "higher"),
            self.command,
        )

    def kept(self, name: str, percent: float) -> Row:
        """Of the work that a program gets done without us."""
        return self._row(f"work_kept/{name}", percent, "percent", 99.5, better="higher")

    def slowdown(self, scenario: Scenario, played: Sequence[Sequence[Ran]], bare: Ran) -> list[Row]:
        """How much longer a burst took than without us, in percent, where the share has room."""
        (member,) = scenario.members
        room = (member.share or 100) - (member.expected or 0)
        if member.workload is not BURSTY or room < LEAST_ROOM:
            return []
        limited, free = _burst(played[0][0]), _burst(bare)
        value = 100 * (limited / free - 1)
        return [self._row(f"slowdown/{scenario.name}", value, "percent", 1)]

    def _row(
        self,
        name: str,
        value: float,
        unit: str,
        target: float | None,
        *,
        better: str = "lower",
        n: int = 1,
        note: str = "",
    ) -> Row:
        target = target if self.binding else None
        missed = target is not None and (value > target if better == "lower" else value < target)
        text = "; ".join(filter(None, ["missed" if missed else "", note]))
        return Row(name, round(value, 4), unit, None, n, target, better, self.command, text)


def _equals(
    scenario: Scenario,
    shares: Sequence[float],
    played: Sequence[Sequence[Ran]],
    start: float,
    end: float,
) -> list[float]:
    """The parts of the members that should all be equal: slices, or the processes of one slice."""
    wanted = {scenario.members[place].expected for place in scenario.busy}
    if len(shares) > 1 and len(wanted) == 1:
        return list(shares)
    if len(played) == 1 and len(played[0]) > 1:
        return [ran.track.share(start, end) for ran in played[0]]
    return []


def _burst(ran: Ran) -> float:
    """Nanoseconds from the beginning of a period to the end of its work.

    Not of the first: a program begins without credit, and has to earn what its first burst takes.
    """
    late = ran.said["late_ns"]
    return float(ran.said["work_ns"] / len(late) + statistics.mean(late[1:]))
