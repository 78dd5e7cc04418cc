"""What our part of a call costs on this card: bench/calls, with fewer calls of a slower driver."""

import subprocess
from collections.abc import Iterator

from bench import calls
from bench.results import Row
from gpu.card import Card
from support.slices import GIB

#: A real driver takes microseconds for what the stub does in nanoseconds, and a context takes a
#: good part of a second and half a GiB of the card.
PAIRS, PART, HOLDERS = 5, 200, 7


def measure(card: Card, command: str) -> Iterator[list[Row] | str]:
    """The rows, group by group; a text is what could not be measured."""
    program = card.programs("calls")
    plan = calls.Plan(command, PAIRS, PART, HOLDERS)
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
