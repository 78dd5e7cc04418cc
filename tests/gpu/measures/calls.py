"""The cost of our part of a call on this card: bench/calls, with fewer calls."""

import subprocess
from collections.abc import Iterator

from bench import calls
from bench.results import Row
from gpu.card import Card
from support.slices import GIB

#: Calls of a real driver take microseconds instead of the stub's nanoseconds, and a context takes a
#: large part of a second and half a GiB of the card. On an H200 a program with all calls takes 2 to
#: 4 seconds: 1 to 2.6 for cuInit (100 ms), the context and 64 modules, 0.9 for the pauses between
#: the rounds, and 0.4 for the calls. The six groups of rows take at most 13 seconds each, and the
#: start of the holders 4 more, so that all is done within 90 seconds.
PAIRS, PART, HOLDERS, SECONDS = 5, 200, 7, 13.0


def measure(card: Card, command: str) -> Iterator[list[Row] | str]:
    """The rows, group by group; a text is a measurement that failed."""
    program = card.programs("calls")
    plan = calls.Plan(command, PAIRS, PART, HOLDERS, SECONDS)
    bare = card.in_process(card.env)
    environments = calls.Environments(
        bare,
        {**bare, "LD_PRELOAD": str(card.library)},
        card.in_process(card.slice(8 * GIB).env),
        card.in_process(card.slice(None, share=calls.SHARE).env),
    )
    try:
        yield calls.alone(program, bare, plan)
        yield from calls.measure(program, environments, plan)
    except (subprocess.SubprocessError, AssertionError, TimeoutError) as error:
        said = getattr(error, "stderr", None) or ""
        yield f"calls: {error} {said}".strip()
