"""The jobs that every framework runs; each framework's file implements them.

    python with_torch.py JOB...

Runs in the machine's own Python, which may differ from the tests'. Each job prints one JSON line,
``{"job", "result"}`` or ``{"job", "error"}``, so that a failed job does not hide the others.
"""

import json
import sys
from collections.abc import Callable, Mapping

MIB = 1 << 20

#: Bytes of one request, and the most bytes to allocate if the limit does not hold.
STEP, MOST = 64 * MIB, 4096 * MIB


def fill(
    allocate: Callable[[int], object], out_of_memory: type[BaseException], size: int = STEP
) -> dict[str, object]:
    """Allocate memory until the framework's own out-of-memory error."""
    blocks = []
    while len(blocks) * size < MOST:
        try:
            blocks.append(allocate(size))
        except out_of_memory as error:
            kinds = [kind.__name__ for kind in type(error).__mro__]
            return {"got": len(blocks) * size, "error": kinds, "text": str(error)[:200]}
    return {"got": len(blocks) * size, "error": [], "text": ""}


def main(jobs: Mapping[str, Callable[[], object]]) -> None:
    """Runs the jobs that the command line names."""
    for name in sys.argv[1:]:
        try:
            line = {"job": name, "result": jobs[name]()}
        except Exception as error:
            line = {"job": name, "error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(line), flush=True)
