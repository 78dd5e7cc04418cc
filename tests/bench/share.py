"""Whether a share of the card's time holds: workloads, shares and company, on the stub.

The virtual clock decides: under it the real library and the real coordinator give the same numbers
each time, and the stub's ledger says what the engine did. The real clock is reported beside it:
there a busy machine wakes programs late, and the programs themselves count what was finished.
"""

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import loads
from bench.campaign import Campaign, Played
from bench.loads import Scenario, Workload
from bench.pauses import Pauses
from bench.results import RESULTS, Row, write
from bench.stage import Ran, Stage
from bench.tracks import Track
from support import artifacts, world
from support.artifacts import ROOT
from support.programs import Programs
from support.stub import StubServer
from support.world import Kit, World

COMMAND = "make bench"

#: Of these too, whether a share of 100 percent costs work.
FULL = (loads.ASYNC_50US, loads.SYNC, loads.GRAPH, loads.DECODE)


@dataclass(frozen=True)
class Plan:
    """The scenarios that are run, and the length of each."""

    caps: Sequence[int]
    alone: float
    """Seconds of each run of one program."""
    company: Sequence[Scenario]
    together: float
    """Seconds of each run of several."""
    kernels: int = 0
    """A run is longer where that is needed for so many of its longest kernels under the least
    share; in company 60 seconds are enough."""

    def solo_seconds(self, workload: Workload) -> float:
        """Seconds for each share of one workload."""
        return max(self.alone, self._needed(workload.longest_us, min(self.caps)))

    def company_seconds(self, scenario: Scenario) -> float:
        """Seconds for one scenario."""
        least = min(scenario.members[place].expected or 100 for place in scenario.busy)
        return max(self.together, min(self._needed(scenario.longest_us, least), 60.0))

    def _needed(self, longest_us: int, share: float) -> float:
        return self.kernels * longest_us / 1e6 * 100 / share


def _everything() -> list[Scenario]:
    scenarios = [
        loads.company(workload, shares)
        for workload in loads.COMPANY
        for shares in ((30, 70), (10, 90), (75, 25), (25, 25, 25, 25))
    ]
    scenarios += [
        loads.company(workload, shares, "soft")
        for workload in loads.COMPANY
        for shares in ((30, 70), (25, 25, 25, 25))
    ]
    busy = loads.ASYNC_500US
    return [
        *scenarios,
        loads.mixture(loads.ASYNC_20US, loads.ASYNC_50MS, (30, 70), "hard"),
        loads.mixture(loads.ASYNC_20US, loads.ASYNC_50MS, (70, 30), "soft"),
        loads.with_idle(busy, (25, 25), 2, "soft"),
        loads.with_idle(busy, (20, 40), 2, "soft"),
        loads.company(busy, (20, 30)),
        loads.with_idle(busy, (10, 20, 30), 1, "hard"),
        loads.crowd(busy, 30, 10),
        loads.beside_one_without(busy, 30),
    ]


#: The scenarios that are plotted.
SHOWN = loads.ASYNC_500US

EXACT = Plan(loads.CAPS, 10.0, _everything(), 10.0, kernels=200)

REAL = Plan(
    (10, 30, 75),
    4.0,
    [
        loads.company(loads.ASYNC_500US, (30, 70)),
        loads.company(loads.ASYNC_5MS, (10, 90)),
        loads.company(loads.ASYNC_500US, (25, 25, 25, 25), "soft"),
        loads.with_idle(loads.ASYNC_500US, (25, 25), 2, "soft"),
        loads.crowd(loads.ASYNC_500US, 30, 10),
        loads.beside_one_without(loads.ASYNC_500US, 30),
    ],
    4.0,
)


def main() -> None:
    """Measures on both clocks; writes docs/results/share and share-real, and the plots."""
    with tempfile.TemporaryDirectory() as folder:
        exact, rows = _virtual_clock(Path(folder), EXACT)
        rows += _told(Pauses(_kit(Path(folder)), Path(folder), COMMAND).rows())
    pictures = ["share-error.svg", "share-time.svg", "share-company.svg"]
    if write("share", "The share of a card's time, on the virtual clock", rows, pictures):
        # The plotting library is installed for this suite only.
        from bench import plots

        shown = [one for one in EXACT.company if one.name.startswith(f"{SHOWN.name}/")]
        errors, over_time, company = (RESULTS / picture for picture in pictures)
        plots.errors(rows, errors)
        plots.over_time(exact.tracks, over_time)
        plots.in_company(shown, exact.tracks, company)
    with tempfile.TemporaryDirectory() as folder, _real_clock(Path(folder)) as real:
        rows = run(real, REAL)
    write("share-real", "The share of a card's time, on the real clock", rows)


def run(campaign: Campaign, plan: Plan) -> list[Row]:
    """All of a plan."""
    rows: list[Row] = []
    for workload in loads.SOLO:
        seconds = plan.solo_seconds(workload)
        rows += _told(campaign.solo(workload, plan.caps, seconds, full=workload in FULL))
    for scenario in plan.company:
        rows += _told(campaign.company(scenario, plan.company_seconds(scenario)))
    return rows


def _told(rows: list[Row]) -> list[Row]:
    for row in rows:
        print(f"{row.name}: {row.value:g} {row.unit} {row.note}", flush=True)
    return rows


@dataclass(frozen=True)
class _Exact:
    """Plays scenarios on the virtual clock; work is the engine's time by the stub's ledger."""

    kit: Kit
    folder: Path

    def play(self, scenario: Scenario, seconds: float) -> Played:
        containers = [
            world.Container(
                name=f"member{place}",
                programs=[world.Program(member.workload.options)] * member.processes,
                share=member.share,
                mode=member.mode,
                bare=member.bare,
            )
            for place, member in enumerate(scenario.members)
        ]
        played = World(self.kit, self.folder).play(containers, seconds)
        return [
            [
                Ran(
                    _track(played.history(one.name, process=process)),
                    played.said[one.name][process],
                )
                for process in range(len(one.programs))
            ]
            for one in containers
        ]


def _track(history: Sequence[float]) -> Track:
    """From the engine time in each bucket of 10 ms."""
    work = [0.0]
    for busy in history:
        work.append(work[-1] + busy)
    return Track(tuple(index / 100 for index in range(len(work))), tuple(work))


def _kit(folder: Path) -> Kit:
    return Kit.in_folder(artifacts.find(), folder)


def _virtual_clock(folder: Path, plan: Plan) -> tuple[Campaign, list[Row]]:
    stage = _Exact(_kit(folder), folder)
    campaign = Campaign(stage.play, COMMAND, binding=True, counted=False)
    return campaign, run(campaign, plan)


@contextlib.contextmanager
def _real_clock(folder: Path) -> Iterator[Campaign]:
    built = artifacts.find()
    (folder / "programs").mkdir()
    load = Programs(ROOT / "tests" / "gpu" / "programs", folder / "programs", built)("load")
    runtime = folder / "runtime"
    runtime.mkdir(mode=0o700)
    with StubServer(built, folder / "stub", "a100") as server:
        env = {
            **server.env,
            "PYTHONPATH": str(ROOT),
            "HAMI_RUNTIME_DIR": str(runtime),
            "HAMI_LIBRARY": str(built.library),
        }
        stage = Stage(env, load)
        try:
            yield Campaign(stage.play, COMMAND, binding=False, settling=0.3)
        finally:
            stage.end()
