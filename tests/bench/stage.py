"""Runs a scenario as its members would be run: by `hami run`, on the card that is there.

What comes back is what the programs themselves saw the card finish.
"""

import json
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.loads import Member, Scenario
from bench.tracks import Track
from support import coordinator
from support.running import Run, Started, run

#: Seconds for all that is not the measured time: starting, contexts, a queue that runs empty.
SLACK = 60.0

#: Milliseconds between two looks at what is finished.
TICK = 10


@dataclass(frozen=True)
class Ran:
    """The results of one program."""

    track: Track
    said: Mapping[str, Any]
    """Its last line: launched and completed kernels, and what is particular to its workload."""


@dataclass(frozen=True)
class Stage:
    """Where scenarios run: how programs find the card, and the program that keeps it busy."""

    env: Mapping[str, str]
    """Leads to the driver, to this package and to a runtime directory that nobody else uses."""
    load: Path
    rounds_per_us: int = 0
    """For a card: rounds of the load's loop that last a microsecond (its ``calibrate``)."""
    slack: float = SLACK
    """Seconds after which a scenario is ended, beyond its own."""

    def play(self, scenario: Scenario, seconds: float) -> list[list[Ran]]:
        """For each member its processes; all of them run at once for so many seconds."""
        with ThreadPoolExecutor(len(scenario.members)) as pool:
            return list(pool.map(lambda member: self._play(member, seconds), scenario.members))

    def calibrate(self) -> int:
        """Rounds of the load's loop that last a microsecond here; 0 where nothing is computed."""
        done = run([self.load, "--work", "calibrate"], self.env)
        assert done.code == 0, done.err
        return int(json.loads(done.out)["rounds_per_us"])

    def end(self) -> None:
        """Ends the coordinator that the first `hami run` with a share has started."""
        coordinator.end(Path(self.env["HAMI_RUNTIME_DIR"]) / "hami")

    def _play(self, member: Member, seconds: float) -> list[Ran]:
        load = [
            *(str(self.load), *member.workload.options, "--seconds", str(seconds)),
            *("--ticks", str(TICK), "--rounds-per-us", str(self.rounds_per_us)),
        ]
        if member.processes > 1:
            each = f'for i in $(seq {member.processes}); do "$@" & done; wait'
            load = ["sh", "-c", each, "load", *load]
        with Started([*_limited(member), *load], self.env) as started:
            return _read(started.finish(deadline=seconds + self.slack), member)


def _limited(member: Member) -> list[str]:
    if member.bare:
        return []
    share = ["--gpucores", str(member.share), "--mode", member.mode] if member.share else []
    return [sys.executable, "-m", "hami_py", "run", *share, "--"]


def _read(done: Run, member: Member) -> list[Ran]:
    """The lines of several processes may be mixed; each says whose it is."""
    if done.code != 0:
        raise RuntimeError(f"{_name(member)}: exit code {done.code}: {done.err.strip()}")
    ticks: dict[int, list[tuple[float, float]]] = {}
    ran = []
    for line in map(json.loads, done.lines):
        seen = ticks.setdefault(line["pid"], [])
        if "elapsed_ns" in line:
            start, end = line["start_ns"], line["start_ns"] + line["elapsed_ns"]
            points = [(start / 1e9, 0.0), *seen]
            if end / 1e9 > points[-1][0]:
                points.append((end / 1e9, line["work_ns"] / 1e9))
            instants, work = zip(*points, strict=True)
            ran.append(Ran(Track(instants, work), line))
        else:
            seen.append((line["t_ns"] / 1e9, line["work_ns"] / 1e9))
    if len(ran) != member.processes:
        ended = f"{len(ran)} of {member.processes} processes ended well"
        raise RuntimeError(f"{_name(member)}: {ended}: {done.err.strip()}")
    return ran


def _name(member: Member) -> str:
    return f"{member.workload.name} under {member.share or 'no'} percent"
