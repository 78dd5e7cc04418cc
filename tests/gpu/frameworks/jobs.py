"""What every framework does here, so that each file shows only how it does it.

    python with_torch.py JOB...

Runs in the machine's own Python, which need not be the tests'. Each job prints one JSON line,
``{"job", "result"}`` or ``{"job", "error"}``, so that one that fails does not hide the others.
"""

import json
import sys
from collections.abc import Callable, Mapping

MIB = 1 << 20

#: Bytes asked for at a time, and the most that a limit that does not hold may cost.
STEP, MOST = 64 * MIB, 4096 * MIB


def fill(
    allocate: Callable[[int], object], out_of_memory: type[BaseException], size: int = STEP
) -> dict[str, object]:
    """Take memory until the framework's own error says that there is no more."""
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
