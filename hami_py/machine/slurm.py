"""Asks Slurm for the shards that a job has of each card of its node, and for the known jobs.

Slurm tells its Prolog the cards of a job, but not how many of their shards. ``scontrol -d show
job`` does, in a line for each node, and for each task of an array:

    GRES=shard:4(IDX:0)            4 shards of card 0 (22.05)
    GRES=shard:6(4/16,0/16,2/16)   4 of 16 of card 0, and 2 of card 2 (newer)
    GRES=gpu:a100:2(IDX:0-1)       two whole cards

A user can write such lines into the job's name. So a job gets the least that any of them says.
"""

import re
import subprocess
from collections.abc import Iterator

from hami_py.errors import StateError

_DEADLINE_S = 10.0

_COUNT = r"\b(gpu|shard)(?::[^:,()]+)?:(\d{1,6})"
_PART = re.compile(_COUNT + r"\((?:IDX:([\d,-]+)|([\d,/]+))\)")


def parts_of(job: int, node: str, cards: str) -> dict[str, tuple[int, int]]:
    """The parts of its cards, n of N, that a job has on a node of Slurm, by the cards' numbers.

    ``cards`` has the numbers as ``SLURM_JOB_GPUS`` has them: ``0,1``.

    Raises:
        StateError: Slurm does not answer within 10 s, or does not show these cards.
    """
    numbers, each = cards.split(","), 0
    least: dict[str, tuple[int, int]] = {}
    for gres in re.findall(r"\bGRES=(\S+)", _answer("scontrol", "-d", "show", "job", str(job))):
        if "shard" in gres and "IDX" in gres:
            each = each or _shards_of_each(node)
        found = dict(_parts(gres, each))
        if len(found) == len(numbers):
            # Slurm counts the cards in the order of their numbers.
            for number, place in zip(numbers, sorted(found), strict=True):
                parts = (found[place], least.get(number, (1, 1)))
                least[number] = min(parts, key=lambda part: part[0] / part[1])
    if not least:
        fix = "in gres.conf, give each card a File=, and each the same Count= of shards"
        raise StateError(f"job {job}", f"Slurm does not show what it has of cards {cards}", fix)
    return least


def jobs() -> set[str]:
    """The numbers of the jobs that have not ended.

    Raises:
        StateError: Slurm does not answer within 10 s.
    """
    return set(_answer("squeue", "--all", "--noheader", "--format=%A").split())


def _parts(gres: str, each: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """What is had of each card, by its place; ``each`` card has so many shards, 0 = unknown."""
    for name, count, indexes, shards in _PART.findall(gres):
        for place, (part, whole) in enumerate(re.findall(r"(\d{1,6})/(\d{1,6})", shards)):
            if 0 < int(part) <= int(whole):
                yield place, (int(part), int(whole))
        ranges = re.findall(r"(\d{1,6})(?:-(\d{1,6}))?", indexes)
        places = [at for a, b in ranges for at in range(int(a), int(b or a) + 1)[:64]]
        # How shards are spread over several cards is not shown: each has this many at least.
        least = max(1, int(count) - each * (len(places) - 1))
        had = (1, 1) if name == "gpu" else (min(least, each), each)
        yield from ((place, had) for place in places if had[0])


def _shards_of_each(node: str) -> int:
    """The shards of each card, from ``Gres=gpu:2,shard:32``; 0 = unknown: not all have the same."""
    totals = {"gpu": 0, "shard": 0}
    for gres in re.findall(r"\bGres=(\S+)", _answer("scontrol", "show", "node", node)):
        for name, count in re.findall(_COUNT, gres):
            totals[name] += int(count)
    cards, shards = totals.values()
    return shards // cards if cards and shards % cards == 0 else 0


def _answer(*command: str) -> str:
    try:
        return subprocess.run(
            command, capture_output=True, errors="replace", timeout=_DEADLINE_S, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", "") or getattr(error, "strerror", "") or error
        why = " ".join(str(said).split())
        raise StateError(command[0], why, f"try `{' '.join(command)}` on this node") from error
