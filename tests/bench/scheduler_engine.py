"""The allocator alone, without Python and HTTP around it, and a start from a snapshot."""

import os
import re
import subprocess
import time
from pathlib import Path

from bench.results import ROOT, Row
from bench.scheduler_rows import row
from bench.scheduler_state import Size, fill
from hami_py.cluster.view import ClusterView

#: ms that a filter and a score may take together; and seconds for reading a snapshot.
TARGET_MS = 1.0
SNAPSHOT_S = 10.0

#: The row for each line of the program's output, and its target.
_ROWS = {
    "filter and score": ("filter + prioritize in the engine, class met before", TARGET_MS),
    "filter and score, new class": (
        "filter + prioritize in the engine, a new class each time",
        TARGET_MS,
    ),
    "filter, new class, all nodes refused": (
        "filter in the engine, a new class, all nodes refuse",
        TARGET_MS,
    ),
    "without unbound, 2,000 held": (
        "what more a refused pod takes in the engine, 2,000 pods hold cards",
        None,
    ),
}


def engine(size: Size) -> list[Row]:
    """Processor time, as `native/allocator/examples/scale.rs` says it."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    program = target / "release" / "examples" / "scale"
    command = [str(program), str(size.nodes), str(size.pods)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    found = re.findall(
        r"^(.*): p50 ([\d.]+) ms, p99 ([\d.]+) ms, .*\(n = (\d+)\)$", done.stdout, re.MULTILINE
    )
    said = {what: (float(p50), float(p99), int(n)) for what, p50, p99, n in found}
    rows = []
    for what, (name, target) in _ROWS.items():
        p50, p99, n = said[what]
        rows += [
            row(f"{name}, p50", [p50], "ms", n=n),
            row(f"{name}, p99", [p99], "ms", target, n=n),
        ]
    return rows


def snapshot(size: Size, runs: int) -> list[Row]:
    """The state of the cluster from its snapshot."""
    filled = fill(size)
    seconds = []
    for _ in range(runs):
        began = time.perf_counter()
        view = ClusterView.restore(filled.snapshot)
        seconds.append(time.perf_counter() - began)
        assert view.digest() == filled.digest, "something is lost or changed"
    return [row(f"start from a snapshot, {size}", seconds, "s", SNAPSHOT_S)]
