"""Where measurements go: docs/results/<suite>.json, and the same as a table beside it."""

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results"


@dataclass(frozen=True)
class Row:
    """One measured number."""

    name: str
    value: float
    unit: str
    spread: float | None
    """The middle half of ``n`` runs, in ``unit``; None where nothing was repeated."""
    n: int
    target: float | None
    """None where there is no target of its own."""
    better: str
    command: str
    note: str = ""


def write(suite: str, title: str, rows: Sequence[Row], pictures: Sequence[str] = ()) -> bool:
    """Shows the suite's results, and puts them into docs/results if the tree has no changes.

    A number must be traceable to the code that it was measured on. Whether it was written; then
    the pictures that the page shows are the caller's to put beside it.
    """
    head = {"machine": machine(), "date": date.today().isoformat(), "commit": _commit()}
    print(table(title, head, rows))
    if head["commit"].endswith("-dirty"):
        print("not written to docs/results: commit the changes first, then measure again")
        return False
    put(RESULTS, suite, title, head, rows, pictures=pictures)
    return True


def put(
    folder: Path,
    suite: str,
    title: str,
    head: Mapping[str, str],
    rows: Sequence[Row],
    *,
    failures: Sequence[str] = (),
    pictures: Sequence[str] = (),
) -> None:
    """Writes the suite's two files; ``failures`` are what could not be measured, and why."""
    document: dict[str, object] = {**head, "rows": [asdict(row) for row in rows]}
    text = table(title, head, rows)
    if failures:
        document["failures"] = list(failures)
        text += "\nNot measured:\n\n" + "".join(f"- {failure}\n" for failure in failures)
    text += "".join(f"\n![{picture}]({picture})\n" for picture in pictures)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{suite}.json").write_text(json.dumps(document, indent=2) + "\n")
    (folder / f"{suite}.md").write_text(text)


def table(title: str, head: Mapping[str, str], rows: Sequence[Row]) -> str:
    """The results for people to read."""
    where = "; ".join(
        f"{name} {value}" if name in {"commit", "driver", "cuda"} else value
        for name, value in head.items()
        if name != "command"
    )
    command = head.get("command") or (rows[0].command if rows else "")
    lines = [
        f"# {title}",
        "",
        f"{where}. Measured by `{command}`; the file beside this one has the same rows as data.",
        "",
        "| what | measured | middle half of runs | target | |",
        "|---|---|---|---|---|",
        *(
            f"| {row.name} | {number(row.value)} {row.unit} | {_spread(row)} | "
            f"{_target(row)} | {row.note} |"
            for row in rows
        ),
    ]
    return "\n".join(lines) + "\n"


def middle_half(values: Sequence[float]) -> float:
    """How wide the middle half of several runs is."""
    low, _, high = statistics.quantiles(values, n=4)
    return high - low


def number(value: float) -> str:
    """Bytes in full, everything else as short as it is exact."""
    return f"{value:.0f}" if value == int(value) else f"{value:g}"


def _spread(row: Row) -> str:
    return "" if row.spread is None else number(row.spread)


def _target(row: Row) -> str:
    if row.target is None:
        return ""
    return f"{'≤' if row.better == 'lower' else '≥'} {row.target:g} {row.unit}"


def machine() -> str:
    """Processor, how many of its cores are ours, kernel and C library."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    release = platform.release().split("-")[0]
    cores = len(os.sched_getaffinity(0))
    return f"{model}, {cores} cores, Linux {release}, {'-'.join(platform.libc_ver())}"


def _commit() -> str:
    """The commit, and whether anything but results has changed since: suites follow each other."""
    git = ["git", "-C", str(ROOT)]
    changes = ["status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/results"]
    described, changed = (
        subprocess.run([*git, *rest], capture_output=True, text=True, check=False).stdout.strip()
        for rest in (["describe", "--always"], changes)
    )
    return f"{described}-dirty" if changed else described
