"""Measures on a card: the driver's own use, our costs, and whether a share holds.

    python -m gpu.measures SUITE --card stub|gpu --built DIR --out DIR --head FILE

Results are written after each group, so that they survive a later crash.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.results import Row, number, put
from gpu.card import Card, real_card, stub_card
from gpu.measures import calls, interactive, memory, share
from support import artifacts

SUITES = {
    "memory": ("What the driver takes of the card for itself", memory.measure),
    "calls": ("What our part of a call costs beside the driver's own", calls.measure),
    "share": ("What programs get of the card under a share of its time", share.measure),
    "interactive": (
        "How long programs with pauses wait for the card beside others",
        interactive.measure,
    ),
}


@dataclass
class Suite:
    """The results of one suite so far."""

    name: str
    folder: Path
    head: dict[str, str]
    rows: list[Row] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def write(self) -> None:
        """Writes the results into the suite's files."""
        title, _ = SUITES[self.name]
        put(self.folder, f"gpu-{self.name}", title, self.head, self.rows, failures=self.failures)


def main() -> int:
    """Measures one suite; returns 1 if a part of it could not be measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("--card", choices=["stub", "gpu"], required=True)
    for name in ("built", "out", "head"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    suite = Suite(options.suite, options.out, json.loads(options.head.read_text()))
    with tempfile.TemporaryDirectory() as folder:
        make = stub_card if options.card == "stub" else real_card
        card = make(artifacts.find(), lambda name: options.built / name, Path(folder))
        try:
            _collect(suite, card)
        finally:
            card.close()
            suite.write()
    for failure in suite.failures:
        print(f"not measured: {failure}", file=sys.stderr)
    return 1 if suite.failures else 0


def _collect(suite: Suite, card: Card) -> None:
    measure: Callable[[Card, str], Iterator[list[Row] | str]] = SUITES[suite.name][1]
    for found in measure(card, suite.head["command"]):
        if isinstance(found, str):
            suite.failures.append(found)
        else:
            suite.rows += found
            for row in found:
                print(f"{row.name}: {number(row.value)} {row.unit}", flush=True)
        suite.write()


if __name__ == "__main__":
    sys.exit(main())
