"""Measures the node agent on a real node: a crowd of pods, one pod at a time, and idle pods.

    python -m bench.node [--quick]      to try: with --quick few pods; nothing is written

`make bench-node` measures at full size, which takes about 15 minutes on two cores, and writes
docs/results/node. The same pods also run on a node without hami, whose device plugin allows
everything and limits nothing.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from bench import rows
from bench.node_clusters import prepare, with_hami, without_hami
from bench.node_costs import Costs, costs
from bench.node_pods import Start, Starts, crowd_s, most_writes, one_by_one
from bench.results import Row, table, write
from bench.rows import percentile
from cluster import crowd

TITLE = "What the node agent takes"
COMMAND = "make bench-node"

#: The time of a crowd relative to a node without hami; ms that are added to the start of a pod.
RATIO, ADDED_MS = 1.3, 50.0

#: API writes for a pod: its binding.
WRITES = 1.0

#: Of agent and coordinator together: MiB, and percent of a core with idle pods and in turns.
RESIDENT_MIB, IDLE_PERCENT, TURNS_PERCENT = 120.0, 2.0, 15.0

row = partial(rows.row, COMMAND)


@dataclass(frozen=True)
class Plan:
    """The size of the measurement.

    Attributes:
        runs: the number of clusters with hami, and of those without.
        kinds: the pods of a crowd.
        ones: pods that start one at a time, in each cluster.
        idle: pods that do nothing but have a context, or that all compute.
        seconds: how long these are observed.
    """

    runs: int
    kinds: crowd.Kinds
    ones: int
    idle: int
    seconds: float


FULL = Plan(3, crowd.CROWD, ones=40, idle=50, seconds=60.0)
QUICK = Plan(2, (crowd.Kind("small", 10, crowd.Size(1024, 5)),), ones=5, idle=5, seconds=5.0)


@dataclass(frozen=True)
class Run:
    """The measurements in a cluster with hami, and the time of a crowd in a cluster without."""

    crowd_without_s: float
    crowd_s: float
    starts: Starts
    writes: int
    idle: Costs
    in_turns: Costs


def main() -> None:
    """Measures all and writes docs/results/node."""
    write("node", TITLE, _rows(FULL))


def _try(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.node")
    parser.add_argument("--quick", action="store_true", help="few pods, few runs")
    plan = QUICK if parser.parse_args(arguments).quick else FULL
    print(table(TITLE, {"command": COMMAND}, _rows(plan)))


def _rows(plan: Plan) -> list[Row]:
    prepare()
    runs = []
    for number in range(1, plan.runs + 1):
        print(f"run {number} of {plan.runs} …", flush=True)
        runs.append(_run(plan))
    return [*_crowds(plan, runs), *_starts(runs), *_costs(plan, runs)]


def _run(plan: Plan) -> Run:
    with without_hami() as subject:
        without_s = crowd_s(subject, plan.kinds)
    with with_hami() as subject:
        return Run(
            without_s,
            crowd_s(subject, plan.kinds),
            one_by_one(subject, plan.ones),
            most_writes(subject),
            costs(subject, plan.idle, "idle", plan.seconds),
            costs(subject, plan.idle, "compute", plan.seconds),
        )


def _crowds(plan: Plan, runs: Sequence[Run]) -> list[Row]:
    name = f"{sum(kind.count for kind in plan.kinds)} pods at once until all programs have started"
    ratios = [run.crowd_s / run.crowd_without_s for run in runs]
    return [
        row(f"{name}, without hami", [run.crowd_without_s for run in runs], "s"),
        row(name, [run.crowd_s for run in runs], "s"),
        row(f"{name}, times that without hami", ratios, "", RATIO),
    ]


def _starts(runs: Sequence[Run]) -> list[Row]:
    found = []
    n = sum(len(run.starts.limited) for run in runs)
    for since, what in (("created", "from creation"), ("bound", "from binding")):
        name = f"one pod at a time, {what} to the start of its program"

        def each(starts: Sequence[Start], since: str = since) -> list[float]:
            return [getattr(start, f"since_{since}") for start in starts]

        for percent in (50, 95):
            theirs = [percentile(each(run.starts.unlimited), percent) for run in runs]
            mine = [percentile(each(run.starts.limited), percent) for run in runs]
            added = [one - other for one, other in zip(mine, theirs, strict=True)]
            # Between binding and start there are only the agent and its coordinator.
            target = ADDED_MS if (since, percent) == ("bound", 95) else None
            found += [
                row(f"{name}, without limits, p{percent}", theirs, "ms", n=n),
                row(f"{name}, p{percent}", mine, "ms", n=n),
                row(f"{name}, p{percent}, added", added, "ms", target, n=n),
            ]
    return found


def _costs(plan: Plan, runs: Sequence[Run]) -> list[Row]:
    def of(what: Callable[[Run], Costs], which: str) -> list[float]:
        return [getattr(what(run), which) for run in runs]

    states = (
        (f"{plan.idle} idle pods", lambda run: run.idle, IDLE_PERCENT),
        (f"{plan.idle} pods in turns", lambda run: run.in_turns, TURNS_PERCENT),
    )
    found = [row("API writes for a pod, the most", [run.writes for run in runs], "", WRITES)]
    for name, what, percent in states:
        found += [
            row(
                f"agent and coordinator, {name}, resident",
                of(what, "resident_mib"),
                "MiB",
                RESIDENT_MIB,
            ),
            row(
                f"agent and coordinator, {name}, shared pages once",
                of(what, "proportional_mib"),
                "MiB",
            ),
            row(
                f"agent and coordinator, {name}",
                of(what, "percent_of_a_core"),
                "% of a core",
                percent,
            ),
        ]
    return found


if __name__ == "__main__":
    _try()
