"""Runs two CUDA programs on one card, each with a share of its time, and measures their parts.

Two measurements agree. The programs count the kernels that they launched and completed, alone and
together. The stub's ledger records how long the card was busy with each of them.
"""

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clients.harness import Client, hami, python
from support.running import Started
from support.stub import StubServer

#: Seconds of computing alone, and with both. At 30 % a round of launches lasts 70 ms.
_ALONE = 1
_TOGETHER = 4


@dataclass(frozen=True)
class Part:
    """The result of one program. Speeds are kernels per second, all of the same length."""

    client: Client
    share: int
    alone: float
    together: float
    engine: float | None
    """Percent of the time in which both ran, by the ledger; None on a real card without ledger."""

    @property
    def percent(self) -> float:
        """Percent of the card; without a ledger, of the program's speed when it is alone."""
        return 100 * self.together / self.alone if self.engine is None else self.engine

    @property
    def holds(self) -> bool:
        """Whether it got at least most of its share, and not much more."""
        return 0.7 * self.share <= self.percent <= self.share + 5


def holds(parts: Sequence[Part]) -> bool:
    """Whether all of them do."""
    return all(part.holds for part in parts)


def compare(
    shares: Mapping[Client, int], environment: Mapping[str, str], server: StubServer | None
) -> list[Part]:
    """Run each program alone without a share, then all at the same time with their shares."""
    alone = [_run([_command(client, _ALONE)], environment)[0] for client in shares]
    limited = [
        [*hami("run", "--gpucores", str(share), "--"), *_command(client, _TOGETHER)]
        for client, share in shares.items()
    ]
    together = _run(limited, environment)
    engine = _engine(server, together) if server else [None] * len(together)
    return [
        Part(client, share, _speed(by_itself), _speed(beside), had)
        for (client, share), by_itself, beside, had in zip(
            shares.items(), alone, together, engine, strict=True
        )
    ]


def _command(client: Client, seconds: int) -> list[str]:
    return python(client.program, "compute", str(seconds))


def _run(commands: Sequence[Sequence[str]], environment: Mapping[str, str]) -> list[Any]:
    """Run programs that begin to compute together when all have started."""
    with contextlib.ExitStack() as stack:
        # On a real card the user's environment matters to CUDA.
        around = {**os.environ, **environment}
        programs = [stack.enter_context(Started(command, around)) for command in commands]
        for program in programs:
            program.wait_for("ready")
        for program in programs:
            program.tell("go")
        done = [program.finish() for program in programs]
    for each in done:
        if each.code != 0:
            raise RuntimeError(f"a program ended with {each.code}\n{each.err}")
    return [json.loads(each.lines[-1]) for each in done]


def _speed(report: Any) -> float:
    return float(report["launches"] / report["seconds"])


def _engine(server: StubServer, reports: Sequence[Any]) -> list[float | None]:
    """Percent of the time between the last begin and the first end."""
    begin = max(report["began_ns"] for report in reports)
    end = min(report["ended_ns"] for report in reports)
    busy = {
        process["pid"]: sum(
            nanoseconds
            for start, nanoseconds in process["cards"][0]["buckets"]
            if begin <= start < end
        )
        for process in server.control({"command": "history"})["processes"]
        if process["cards"]
    }
    return [100 * busy[report["pid"]] / (end - begin) for report in reports]
