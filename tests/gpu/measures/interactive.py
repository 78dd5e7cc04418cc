"""How long programs that do not always have work wait for the card, beside a program that has.

Each scene runs in several ways: the program alone and without us, both programs without us (then
the driver divides the card in time slices), and both under shares. All rates are relative to the
same program alone. Nothing is judged: the rows say what this card and this driver do.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bench import loads
from bench.loads import Member, Scenario, Workload
from bench.results import Row
from bench.rows import row
from bench.stage import Ran
from bench.tracks import common, percentile
from gpu.card import Card
from gpu.measures.share import SETTLING, Watched, make_stage

#: Seconds in which all scenes must end; the rest is left out and reported.
BUDGET = 230.0

#: Seconds that a scene takes beyond its own: two programs, their contexts and the queued work.
BEYOND = 2.0

#: Seconds after which a scene is ended, beyond its own. A kernel that meets none gives up after 4.
SLACK = 20.0

_ALONE = "percent of alone"


@dataclass(frozen=True)
class Way:
    """How the programs of a scene run."""

    name: str
    shares: tuple[int, ...] = ()
    mode: str = "hard"

    def scenario(self, *workloads: Workload) -> Scenario:
        """These programs at once, each with its share, or without us where there are none."""
        members = tuple(
            Member(workload, self.shares[place], self.mode)
            if self.shares
            else Member(workload, bare=True)
            for place, workload in enumerate(workloads)
        )
        title = "+".join(workload.name for workload in workloads)
        return Scenario(f"{title}/{len(workloads)}/{self.name}", members)


BARE = Way("bare")
SOFT = Way("50+50-soft", (50, 50), "soft")
HARD = Way("50+50-hard", (50, 50))
MEETING = Way("20+79-hard", (20, 79))
ALONE_SOFT = Way("50-soft", (50,), "soft")


@dataclass(frozen=True)
class Scene:
    """A program, alone without us and in other ways, and beside each of some trainers."""

    workload: Workload
    seconds: float
    ways: Sequence[Way]
    trainers: Sequence[Workload] = ()


TRAINERS = (loads.ASYNC_500US, loads.ASYNC_5MS, loads.ASYNC_20MS)

#: The most wanted first. 155 seconds on the stub; a card needs longer to start and end programs.
GPU = (
    Scene(loads.DECODE_1MS, 3.0, (BARE, SOFT, HARD), TRAINERS),
    Scene(loads.NOTEBOOK, 10.5, (ALONE_SOFT,)),
    Scene(loads.meeting(600), 3.0, (BARE, MEETING), TRAINERS[:1]),
    Scene(loads.meeting(1200), 3.0, (BARE, MEETING), TRAINERS[:1]),
    Scene(loads.SERVER, 6.0, (BARE, SOFT), TRAINERS),
    Scene(loads.SERVER, 6.0, (HARD,), TRAINERS[1:2]),
    Scene(loads.meeting(600, streams=True), 3.0, (BARE, MEETING), TRAINERS[:1]),
    Scene(loads.meeting(1200, streams=True), 3.0, (BARE, MEETING), TRAINERS[:1]),
)

#: The same code with the least work, to check that it runs.
STUB = (
    Scene(loads.DECODE_1MS, 1.5, (BARE, SOFT), TRAINERS[:1]),
    Scene(loads.NOTEBOOK, 1.5, (ALONE_SOFT,)),
    Scene(loads.meeting(600), 1.5, (MEETING,), TRAINERS[:1]),
    Scene(loads.SERVER, 1.5, (SOFT,), TRAINERS[:1]),
    Scene(loads.meeting(600, streams=True), 1.5, (MEETING,), TRAINERS[:1]),
)


def measure(card: Card, command: str) -> Iterator[list[Row] | str]:
    """The rows, scene by scene; a text is a measurement that failed."""
    stage = make_stage(card, SLACK)
    scenes = _Scenes(Watched(card, stage), command)
    try:
        for scene in STUB if card.stub else GPU:
            yield from scenes.play(scene)
    finally:
        stage.end()


@dataclass
class _Scenes:
    watched: Watched
    command: str
    _begun: float = field(default_factory=time.monotonic)
    _alone: dict[Workload, float] = field(default_factory=dict)
    """Seconds of work that a program alone gets done in a second."""

    def play(self, scene: Scene) -> Iterator[list[Row] | str]:
        """The scene in all its ways."""
        programs = scene.workload, *scene.trainers
        for workload in programs:
            if workload not in self._alone:
                yield self._tried(BARE.scenario(workload), scene.seconds)
        if any(workload not in self._alone for workload in programs):
            return
        for way in scene.ways:
            if not scene.trainers:
                yield self._tried(way.scenario(scene.workload), scene.seconds)
            for trainer in scene.trainers:
                yield self._tried(way.scenario(scene.workload, trainer), scene.seconds)

    def _tried(self, scenario: Scenario, seconds: float) -> list[Row] | str:
        left = BUDGET - (time.monotonic() - self._begun)
        if left < seconds + BEYOND:
            return f"{scenario.name}: left out, {left:.0f} s were left"
        return self.watched.group(
            scenario.name, lambda: self._rows(scenario, seconds), self.command
        )

    def _rows(self, scenario: Scenario, seconds: float) -> list[Row]:
        ran = [processes[0] for processes in self.watched.play(scenario, seconds)]
        workloads = [member.workload for member in scenario.members]
        start, end = common([each.track for each in ran], SETTLING)
        rates = [each.track.share(*each.track.completions(start, end)) / 100 for each in ran]
        waits = self._waits(scenario.name, ran[0], start, end)
        if workloads[0] not in self._alone:
            self._alone[workloads[0]] = rates[0]
            return [self._row("demand", scenario, 100 * rates[0], "percent"), *waits]
        kept = [
            100 * rate / self._alone[workload]
            for rate, workload in zip(rates, workloads, strict=True)
        ]
        rows = [
            self._row(title, scenario, percent, _ALONE, f"{100 * rate:.1f} % of the run")
            for title, percent, rate in zip(("steps", "trainer"), kept, rates, strict=False)
        ]
        if len(ran) > 1:
            rows.append(self._row("sum", scenario, sum(kept), _ALONE))
        return rows + waits

    def _row(self, title: str, scenario: Scenario, value: float, unit: str, note: str = "") -> Row:
        name = f"{title}/{scenario.name}"
        return row(self.command, name, [value], unit, better="higher", note=note)

    def _waits(self, name: str, ran: Ran, start: float, end: float) -> list[Row]:
        """How long the steps took that began while all programs ran."""
        begun = ran.said["start_ns"]
        waits = [
            took / 1e6
            for begin, took in ran.said.get("steps", [])
            if start <= (begun + begin) / 1e9 <= end
        ]
        if not waits:
            return []
        return [
            row(self.command, f"{title}/{name}", [value], "ms", n=len(waits))
            for title, value in (
                *((f"p{percent}", percentile(waits, percent)) for percent in (50, 95, 99)),
                ("longest", max(waits)),
            )
        ]
