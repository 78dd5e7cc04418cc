"""What our part of a call costs, beside the bare stub in the same run.

Each time is a difference of two runs of `calls.c` that follow each other, one without and one with
the library; the median of several such pairs is reported. Where a difference is smaller than the
noise of a busy machine, valgrind counts instructions: of one process alone in its slice, the same
number to within a few every time.
"""

import contextlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bench.results import Row, write
from support import artifacts, slices
from support.artifacts import Artifacts
from support.running import Started
from support.slices import GIB

PAIRS = 15
EXECS = 200
COMMAND = "make bench"

Measure = Callable[[Mapping[str, str]], dict[str, float]]


def main() -> None:
    """Measures and writes docs/results/calls."""
    built = artifacts.find()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        program = _compile(built, folder / "calls")
        # A small card: valgrind has no room for the addresses of a large one.
        bare = {"LD_LIBRARY_PATH": str(built.stub_dir), "STUB_GPU_PROFILE": "t4"}
        preloaded = {**bare, "LD_PRELOAD": str(built.library)}
        limited = {**preloaded, "HAMI_SLICE": str(_slice(folder / "slice", built, bare))}

        def calls(environment: Mapping[str, str]) -> dict[str, float]:
            lines = _output([str(program)], environment).splitlines()
            return {name: float(value) for name, value in map(str.split, lines)}

        without_limit = _differences(calls, bare, preloaded)
        with_limit = _differences(calls, bare, limited)
        load = _differences(_exec, bare, preloaded)
        counted = {
            name: _instructions(program, name, limited) - _instructions(program, name, bare)
            for name in ("launch", "alloc_free", "memory_info")
        }
        # Last: an account stays as wide as it once was.
        with _holders(program, limited, 63):
            crowded = _differences(calls, bare, limited)

    write(
        "calls",
        "What our part of a call costs",
        [
            _row("launch, no limit", without_limit["launch"], "ns", 1),
            _row("launch, limited in memory only", with_limit["launch"], "ns", 10),
            _row("alloc + free, no limit", without_limit["alloc_free"], "ns", 150),
            _row("alloc + free, limited, 1 process", with_limit["alloc_free"], "ns", 150),
            _row("alloc + free, limited, 64 processes", crowded["alloc_free"], "ns", 250),
            _row("free with 20,000 live, limited", with_limit["free_20000_live"], "ns", 100),
            _row("cuMemGetInfo, limited", with_limit["memory_info"], "ns", 100),
            _row("load into a process", load["exec"], "ms", 0.2),
            _row(
                "added to cuInit, limited",
                [value / 1e6 for value in with_limit["cuinit"]],
                "ms",
                1,
            ),
            *(_counted_row(name, count) for name, count in counted.items()),
        ],
    )


def _differences(
    measure: Measure, bare: Mapping[str, str], other: Mapping[str, str]
) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for _ in range(PAIRS):
        before, after = measure(bare), measure(other)
        for name, value in after.items():
            found.setdefault(name, []).append(value - before[name])
    return found


@contextlib.contextmanager
def _holders(program: Path, environment: Mapping[str, str], count: int) -> Iterator[None]:
    """So many more processes that hold memory of the slice."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            started = stack.enter_context(Started([program, "hold"], environment))
            started.wait_for("holding")
        yield


def _exec(environment: Mapping[str, str]) -> dict[str, float]:
    """Milliseconds to run /bin/true, which loads the library and calls nothing."""
    start = time.perf_counter()
    for _ in range(EXECS):
        _output(["/bin/true"], environment)
    return {"exec": (time.perf_counter() - start) * 1e3 / EXECS}


def _instructions(program: Path, name: str, environment: Mapping[str, str]) -> float:
    """Instructions per call: the difference of two runs cancels what is not the call."""
    few, many = 1000, 3000
    return (_count(program, name, many, environment) - _count(program, name, few, environment)) / (
        many - few
    )


def _count(program: Path, name: str, calls: int, environment: Mapping[str, str]) -> int:
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", str(program)]
    done = subprocess.run(
        [*command, name, str(calls)],
        env={"PATH": os.environ["PATH"], **environment},
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    found = re.search(r"Collected : (\d+)", done.stderr)
    assert found, done.stderr
    return int(found[1])


def _counted_row(name: str, count: float) -> Row:
    what = f"{name.replace('_', ' + ', name == 'alloc_free').replace('_', ' ')}, limited"
    return Row(what, round(count, 1), "instructions", 0, 1, None, "lower", COMMAND)


def _row(name: str, values: list[float], unit: str, target: float) -> Row:
    low, _, high = statistics.quantiles(values, n=4)
    middle = statistics.median(values)
    note = "missed" if middle > target else "within the noise" if abs(middle) < high - low else ""
    return Row(
        name,
        round(middle, 3),
        unit,
        round(high - low, 3),
        len(values),
        target,
        "lower",
        COMMAND,
        note,
    )


def _slice(directory: Path, built: Artifacts, bare: Mapping[str, str]) -> Path:
    """A slice of 8 GiB on the card of the in-process stub."""
    listing = (
        "import pynvml as n; n.nvmlInit(); "
        "print(n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(0)))"
    )
    uuid = _output([sys.executable, "-c", listing], bare).strip()
    return slices.make(directory, {uuid: 8 * GIB})


def _compile(built: Artifacts, target: Path) -> Path:
    source = Path(__file__).with_name("calls.c")
    command = ["gcc", "-O2", "-o", str(target), str(source), f"-L{built.stub_dir}", "-lcuda"]
    subprocess.run(command, check=True, timeout=60)
    return target


def _output(command: list[str], environment: Mapping[str, str]) -> str:
    return subprocess.run(
        command,
        env={"PATH": os.environ["PATH"], **environment},
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    ).stdout
