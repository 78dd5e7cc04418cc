"""How long the check takes: runs what `.ci/run` runs and writes docs/results/check.

    python -m bench.check             make lint, make test, make test-cluster
    python -m bench.check torture     make torture, too

Every part must pass: the times of a check that fails say nothing. tests/support/parallel.py reads
the names of the slowest tests from here.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.results import ROOT, Row, write

COMMAND = "make check-times"

#: Tests that are listed.
SLOWEST = 30

#: The suffix of a row about the fixtures of a test.
AROUND = " (fixtures)"

#: Seconds, on two cores that have nothing else to do, where all was built before.
TEST_TARGET_S, ALL_TARGET_S = 12 * 60, 35 * 60

#: The target of the Makefile that runs a tier.
TARGETS = {"fast": "test", "ci": "test-cluster", "torture": "torture"}


def main(arguments: Sequence[str]) -> int:
    """Run the parts one after the other."""
    tiers = ["fast", "ci", *arguments]
    if unknown := {*tiers} - {*TARGETS}:
        print(f"bench.check: there is no tier {', '.join(unknown)}", file=sys.stderr)
        return 2
    lint = _seconds("lint")
    rows = [_row("make lint", lint), _row("cargo test", _seconds("test-rust"))]
    whole, tests = lint, list[tuple[float, str, str]]()
    for tier in tiers:
        with tempfile.TemporaryDirectory() as folder:
            record = Path(folder) / "times.json"
            took = _seconds(TARGETS[tier], f"ARGS=--times={record}")
            times: dict[str, Any] = json.loads(record.read_text())
        target = TEST_TARGET_S if tier == "fast" else None
        note = f"{len(times['tests'])} tests in two processes"
        rows.append(_row(f"make {TARGETS[tier]}", took, target))
        rows.append(_row(f"pytest --tier {tier}", times["seconds"], note=note))
        tests += [(seconds, name, tier) for name, seconds in times["tests"].items()]
        tests += [(seconds, f"{name}{AROUND}", tier) for name, seconds in times["around"].items()]
        if tier != "torture":
            whole += took
    rows.append(_row(".ci/run", whole, ALL_TARGET_S, "make lint, test and test-cluster"))
    for seconds, name, tier in sorted(tests, reverse=True)[:SLOWEST]:
        rows.append(_row(name, seconds, note=tier))
    write("check", "How long the check takes, and its slowest tests", rows)
    return 0


def _seconds(target: str, *arguments: str) -> float:
    """How long a target of the Makefile takes."""
    begin = time.monotonic()
    subprocess.run(["make", target, *arguments], cwd=ROOT, check=True)
    return time.monotonic() - begin


def _row(name: str, seconds: float, target: float | None = None, note: str = "") -> Row:
    return Row(name, round(seconds, 1), "s", None, 1, target, "lower", COMMAND, note)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
