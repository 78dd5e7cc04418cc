"""Measures the control plane: in a large cluster, under a real API server, and under load.

    python -m bench.scheduler [--quick] [PART …]      to try: some parts, small, nothing is written

`make bench-scheduler` measures all parts at full size, which takes about a quarter of an hour on
two cores, and writes docs/results/scheduler.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.results import Row, table, write
from bench.scheduler_cluster import bound, reviews, start
from bench.scheduler_filters import engine, http, scrape, snapshot
from bench.scheduler_state import COMMAND, Size

TITLE = "What the control plane takes"


@dataclass(frozen=True)
class Plan:
    """The size of the measurement.

    Attributes:
        size: of the large cluster.
        runs: the number of repetitions.
        asked: pods that are filtered in a run.
        bound: nodes, and pods that are bound in a run.
        reviews: of the webhook in a run.
    """

    size: Size
    runs: int
    asked: int
    bound: tuple[int, int]
    reviews: int


FULL = Plan(Size(5_000, 100_000), runs=5, asked=400, bound=(200, 1_000), reviews=10_000)
QUICK = Plan(Size(200, 4_000), runs=2, asked=50, bound=(20, 100), reviews=1_000)

PARTS: dict[str, Callable[[Plan], list[Row]]] = {
    "engine": lambda plan: engine(plan.size),
    "snapshot": lambda plan: snapshot(plan.size, plan.runs),
    "scrape": lambda plan: scrape(plan.size, plan.runs),
    "http": lambda plan: http(plan.size, 2 * plan.runs, plan.asked),
    "start": lambda plan: start(plan.size, plan.runs),
    "bound": lambda plan: bound(*plan.bound, plan.runs),
    "webhook": lambda plan: reviews(plan.runs, plan.reviews),
}


def main() -> None:
    """Measures all and writes docs/results/scheduler."""
    write("scheduler", TITLE, _rows(FULL, list(PARTS)))


def _try(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.scheduler")
    parser.add_argument("--quick", action="store_true", help="a small cluster, few runs")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of: {', '.join(PARTS)}")
    asked = parser.parse_args(arguments)
    for name in asked.parts:
        if name not in PARTS:
            parser.error(f"{name}: there is no such part; choose {', '.join(PARTS)}")
    rows = _rows(QUICK if asked.quick else FULL, asked.parts or list(PARTS))
    print(table(TITLE, {"command": COMMAND}, rows))


def _rows(plan: Plan, parts: Sequence[str]) -> list[Row]:
    rows = []
    for name in parts:
        print(f"{name} …", flush=True)
        rows += PARTS[name](plan)
    return rows


if __name__ == "__main__":
    _try()
