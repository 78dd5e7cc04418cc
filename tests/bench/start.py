"""Measures the processor time that our programs take to start, on the stub.

Processor time, because a start waits for other programs on a busy machine. Python's own is that of
`python -c pass`, from the run before.
"""

import os
import resource
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.results import write
from bench.rows import row
from support import artifacts

COMMAND = "make bench"
RUNS = 25


def main() -> None:
    """Measures and writes docs/results/start."""
    python = [sys.executable, "-c"]
    hami = [str(Path(sysconfig.get_path("scripts"), "hami")), "run", "--", "true"]
    imported, ran = list[float](), list[float]()
    with tempfile.TemporaryDirectory() as temporary:
        environment = {
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(artifacts.find().stub_dir),
            "HAMI_RUNTIME_DIR": temporary,
        }
        for _ in range(RUNS):
            empty = _milliseconds([*python, "pass"], environment)
            imported.append(_milliseconds([*python, "import hami_py"], environment) - empty)
            ran.append(_milliseconds(hami, environment))
    rows = [
        row(COMMAND, "import hami_py, beyond Python's own", imported, "ms", 100),
        row(COMMAND, "hami run -- true", ran, "ms", 200),
    ]
    write("start", "Processor time of a start", rows)


def _milliseconds(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """Of the processor, for a program and those that it waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, check=True, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
