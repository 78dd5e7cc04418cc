"""Runs scenarios one after the other, with the baselines that they are compared with in between.

The campaign is the same on the stub's virtual clock, on its real clock, and on a card. Only the
runner differs.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench import loads
from bench.loads import Member, Scenario, Workload
from bench.results import Row
from bench.stage import Ran
from bench.tracks import Track, common
from bench.verdicts import Judge

Played = Sequence[Sequence[Ran]]

#: Plays a scenario for so many seconds: for each member, what each of its processes did.
Play = Callable[[Scenario, float], Played]


@dataclass
class Campaign:
    """One series of runs on one card."""

    play: Play
    command: str
    binding: bool
    """Whether the targets hold here; else the numbers are only reported."""
    counted: bool = True
    """Work is what programs counted, in parts of what they get done without us; else it is the
    engine's own time."""
    settling: float = 0.0
    """Seconds at the beginning of each run that do not count."""
    again: bool = False
    """Whether what is compared with is measured after the runs too: a card becomes warm."""
    tracks: dict[str, list[Track]] = field(default_factory=dict)
    """For the plots: by scenario, the card's time that each member had."""
    _whole: dict[str, list[float]] = field(default_factory=dict)

    def solo(
        self, workload: Workload, caps: Sequence[int], seconds: float, *, full: bool = False
    ) -> list[Row]:
        """A program alone, under each share; ``full``: also under one of 100 percent."""
        self._know(workload.unit, seconds)
        free = [self._bare(workload, seconds)]
        played = {cap: self.play(_capped(workload, cap), seconds) for cap in caps}
        whole = self.play(_capped(workload, 100), seconds) if full else None
        if self.again:
            free.append(self._bare(workload, seconds))
        judge = self._judge()
        demands = [self._percent(judge, workload, ran) for ran in free]
        demand = min(100.0, statistics.mean(demands))
        rows = [judge.demand(workload, demands)]
        for cap, what in played.items():
            (scenario,) = loads.solo(workload, [cap], demand)
            rows += self._rows(judge, scenario, what)
            rows += judge.slowdown(scenario, what, free[0])
        if whole:
            (ran,) = whole[0]
            kept = 100 * self._percent(judge, workload, ran) / statistics.mean(demands)
            rows.append(judge.kept(f"{workload.name}/1/100", kept))
        return rows

    def company(self, scenario: Scenario, seconds: float) -> list[Row]:
        """Several slices at once."""
        for member in scenario.members:
            self._know(member.workload.unit, seconds)
        return self._rows(self._judge(), scenario, self.play(scenario, seconds))

    def _rows(self, judge: Judge, scenario: Scenario, played: Played) -> list[Row]:
        self.tracks[scenario.name] = judge.tracks(scenario, played)
        return judge.rows(scenario, played)

    def _know(self, unit: Workload, seconds: float) -> None:
        """The capacity of the whole card for work of this kind; engine time needs no unit."""
        if self.counted and unit.name not in self._whole:
            self._bare(unit, seconds)

    def _bare(self, workload: Workload, seconds: float) -> Ran:
        """The program without us."""
        played = self.play(loads.baseline(workload), seconds)
        track = played[0][0].track
        rate = track.share(*self._counted_time(track)) / 100
        self._whole.setdefault(workload.name, []).append(rate)
        return played[0][0]

    def _counted_time(self, track: Track) -> tuple[float, float]:
        return track.completions(*common([track], self.settling))

    def _judge(self) -> Judge:
        """By what has been measured until now."""
        rates = {name: statistics.mean(rates) for name, rates in self._whole.items()}
        whole = rates if self.counted else None
        return Judge(self.command, whole, self.binding, self.settling)

    def _percent(self, judge: Judge, workload: Workload, ran: Ran) -> float:
        track = judge.track(workload, [ran])
        return track.share(*self._counted_time(track))


def _capped(workload: Workload, cap: int) -> Scenario:
    return Scenario(f"{workload.name}/1/{cap}", (Member(workload, cap),))
