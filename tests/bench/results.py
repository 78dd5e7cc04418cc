"""Where measurements go: docs/results/<suite>.json, and the same as a table beside it."""

import json
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Row:
    """One measured number. ``spread`` is the middle half of ``n`` runs, in ``unit``."""

    name: str
    value: float
    unit: str
    spread: float
    n: int
    target: float | None
    """None where there is no target of its own."""
    better: str
    command: str
    note: str = ""


def write(suite: str, title: str, rows: Sequence[Row]) -> None:
    """Shows the suite's results, and puts them into docs/results if the tree has no changes.

    A number must be traceable to the code that it was measured on.
    """
    head = {"machine": _machine(), "date": date.today().isoformat(), "commit": _commit()}
    document = {**head, "rows": [asdict(row) for row in rows]}
    lines = [
        f"# {title}",
        "",
        f"{head['machine']}; {head['date']}; commit {head['commit']}. Measured by "
        f"`{rows[0].command}`; the file beside this one has the same rows as data.",
        "",
        "| what | measured | middle half of runs | target | |",
        "|---|---|---|---|---|",
        *(
            f"| {row.name} | {row.value:g} {row.unit} | {row.spread:g} | {_target(row)} | "
            f"{row.note} |"
            for row in rows
        ),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    folder = ROOT / "docs" / "results"
    if head["commit"].endswith("-dirty"):
        print("not written to docs/results: commit the changes first, then measure again")
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{suite}.json").write_text(json.dumps(document, indent=2) + "\n")
    (folder / f"{suite}.md").write_text(text)


def _target(row: Row) -> str:
    if row.target is None:
        return ""
    return f"{'≤' if row.better == 'lower' else '≥'} {row.target:g} {row.unit}"


def _machine() -> str:
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    release = platform.release().split("-")[0]
    return f"{model}, Linux {release}, {'-'.join(platform.libc_ver())}"


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
