"""Whether a share of the card's time holds on this card, with completed work as the measure.

100 percent is the work of the same program without us, measured before and after the runs, because
a warm card is slower. The work is a loop with a number of rounds: a kernel that reads the time
would end as soon with half of the card.
"""

import statistics
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from bench import loads
from bench.campaign import Campaign, Played
from bench.loads import Scenario, Workload
from bench.results import Row, middle_half
from bench.stage import SLACK, Stage
from gpu.card import Card, python_path

#: Seconds at the beginning of a run that do not count: saved-up credit is used first.
SETTLING = 0.3

#: Seconds between two reads of the card's clock.
LOOK = 0.25

#: For these workloads, also measure whether a share of 100 percent costs work.
FULL = (loads.ASYNC_50US, loads.GRAPH, loads.DECODE)


@dataclass(frozen=True)
class Plan:
    """The measurements, and the seconds for each."""

    solo: Sequence[tuple[Workload, Sequence[int], float]]
    company: Sequence[Scenario]
    company_seconds: float
    again: bool
    """Whether the baseline is measured a second time, after the runs."""


GPU = Plan(
    solo=[
        (loads.ASYNC_50US, loads.CAPS, 2.0),
        *(
            (workload, (10, 30, 50, 90), 2.0)
            for workload in loads.SOLO
            if workload not in {loads.ASYNC_50US, loads.ASYNC_50MS}
        ),
        (loads.ASYNC_50MS, (30, 50), 6.0),
    ],
    company=[
        loads.company(loads.ASYNC_20US, (30, 70)),
        loads.company(loads.ASYNC_500US, (30, 70)),
        loads.company(loads.ASYNC_5MS, (30, 70)),
        loads.company(loads.ASYNC_500US, (10, 90)),
        loads.company(loads.ASYNC_500US, (75, 25), "soft"),
        loads.company(loads.ASYNC_500US, (25, 25, 25, 25), "soft"),
        loads.with_idle(loads.ASYNC_500US, (25, 25), 2, "soft"),
        loads.company(loads.ASYNC_500US, (20, 30)),
        loads.crowd(loads.ASYNC_500US, 30, 10),
        loads.beside_one_without(loads.ASYNC_500US, 30),
    ],
    company_seconds=4.0,
    again=True,
)

#: The same code with the least work, to check that it runs.
STUB = Plan(
    solo=[
        (workload, (30,), 0.8)
        for workload in (loads.ASYNC_50US, loads.GRAPH, loads.MIXED, loads.BURSTY, loads.DECODE)
    ],
    company=[loads.company(loads.ASYNC_500US, (30, 70)), loads.crowd(loads.ASYNC_500US, 30, 3)],
    company_seconds=0.8,
    again=False,
)


def measure(card: Card, command: str) -> Iterator[list[Row] | str]:
    """The rows, group by group; a text is a measurement that failed.

    Several programs come first: if time runs out, they are what is wanted most.
    """
    plan = STUB if card.stub else GPU
    stage = make_stage(card)
    watched = Watched(card, stage)
    campaign = Campaign(
        watched.play, command, binding=not card.stub, settling=SETTLING, again=plan.again
    )
    try:
        for scenario in plan.company:

            def company(of: Scenario = scenario):
                return campaign.company(of, plan.company_seconds)

            yield watched.group(scenario.name, company, command)
        for workload, caps, seconds in plan.solo:

            def solo(of: Workload = workload, caps: Sequence[int] = caps, s: float = seconds):
                return campaign.solo(of, caps, s, full=of in FULL)

            yield watched.group(workload.name, solo, command)
    finally:
        stage.end()


def make_stage(card: Card, slack: float = SLACK) -> Stage:
    """Runs programs on this card, in slices of their own."""
    runtime = card.folder / "runtime"
    runtime.mkdir(mode=0o700)
    env = {
        **card.env,
        **python_path(),
        "HAMI_RUNTIME_DIR": str(runtime),
        "HAMI_LIBRARY": str(card.library),
    }
    load = card.programs("load")
    return Stage(env, load, Stage(env, load).calibrate(), slack)


@dataclass
class Watched:
    """Runs programs and reads the card's clock meanwhile: a card under a share may run faster."""

    card: Card
    stage: Stage
    clocks: list[int] = field(default_factory=list)

    def play(self, scenario: Scenario, seconds: float) -> Played:
        over = threading.Event()
        looking = threading.Thread(target=self._look, args=(over,))
        looking.start()
        try:
            return self.stage.play(scenario, seconds)
        finally:
            over.set()
            looking.join()

    def _look(self, over: threading.Event) -> None:
        while not over.wait(LOOK):
            self.clocks.append(int(self.card.observe()["sm_clock_mhz"]))

    def group(self, name: str, rows: Callable[[], list[Row]], command: str) -> list[Row] | str:
        """The rows and the clock at which they were measured, or why there are none."""
        self.clocks.clear()
        try:
            found = rows()
        except (AssertionError, OSError, RuntimeError, ValueError) as error:
            return f"{name}: {type(error).__name__}: {error}"
        if not self.clocks:
            return found
        middle = statistics.median(self.clocks)
        spread = middle_half(self.clocks) if len(self.clocks) > 1 else None
        clock = Row(
            *(f"sm_clock/{name}", middle, "MHz", spread, len(self.clocks), None, "higher"), command
        )
        return [*found, clock]
