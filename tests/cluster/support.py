"""Runs the smoke test of a cluster with other versions of Kubernetes and containerd.

    PYTHONPATH=tests python -m cluster.support                 # all of CELLS; hours on two cores
    PYTHONPATH=tests python -m cluster.support kubernetes-1.34  # one of them

It builds what is missing into the user's cache, and writes what it saw into docs/results: the page
has a row for each cell that was ever run. docs/support.md is about the results.
"""

import json
import os
import re
import subprocess
import sys
import time
from datetime import date
from typing import Any

from cluster.binaries import OTHER_CONTAINERD, OTHER_KUBERNETES
from support.artifacts import ROOT

#: By the name of a cell, the variables that choose its versions.
CELLS: dict[str, dict[str, str]] = {
    **{
        f"kubernetes-{version.rpartition('.')[0]}": {OTHER_KUBERNETES: version}
        for version in ("1.30.14", "1.31.14", "1.32.13", "1.33.13", "1.34.4", "1.35.4", "1.36.3")
    },
    "containerd-1.7": {OTHER_CONTAINERD: "1.7.35"},
}

#: Two pods on one card: their memory and their shares, and attacks of the root of a container.
SMOKE = "tests/cluster/test_limited_pods.py"

RESULTS = ROOT / "docs" / "results" / "support.json"

PAGE = RESULTS.with_suffix(".md")

_HEAD = """# Support

Made by `python -m cluster.support`; do not edit it. Each cell is a run of the smoke test,
`{smoke}`, with the versions of its row in place of the locked ones. [Support](../support.md)
has the rest.

| cell | versions | result | seconds | date | commit |
|---|---|---|---|---|---|
"""


def run(cell: str) -> dict[str, Any]:
    """The result of a cell."""
    begin = time.monotonic()
    command = [sys.executable, "-m", "pytest", "--quiet", "--tier", "ci", "-n", "0", SMOKE]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **CELLS[cell]},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(done.stdout[-5000:])
    return {
        "cell": cell,
        "versions": ", ".join(CELLS[cell].values()),
        "result": _summary(done.stdout),
        "seconds": round(time.monotonic() - begin),
        "date": date.today().isoformat(),
        "commit": _output("git", "rev-parse", "--short=8", "HEAD"),
    }


def _summary(text: str) -> str:
    """The counts of pytest's last line that has some."""
    found = re.findall(r"^=* *((?:\d+ \w+,? ?)+) in \d", text, re.MULTILINE)
    return str(found[-1]) if found else "no result"


def write(rows: dict[str, dict[str, Any]]) -> None:
    """Write both files."""
    ordered = [rows[cell] for cell in CELLS if cell in rows]
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")
    lines = (" | ".join(map(str, each.values())) for each in ordered)
    PAGE.write_text(_HEAD.format(smoke=SMOKE) + "".join(f"| {line} |\n" for line in lines))


def _output(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def main(cells: list[str]) -> None:
    """Run these cells, or all."""
    unknown = {*cells} - CELLS.keys()
    if unknown:
        sys.exit(f"no cell is named {', '.join(sorted(unknown))}; write {', '.join(CELLS)}")
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    rows = {each["cell"]: each for each in known}
    for cell in cells or CELLS:
        rows[cell] = run(cell)
        write(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
