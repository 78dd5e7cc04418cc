"""Measures how much our part of a call costs beside the bare stub, in the same run.

Each time is the difference between two consecutive runs of `calls.c`, one without and one with the
library; the median of several such pairs is reported. If a difference is smaller than the noise of
a busy machine, valgrind counts instructions instead. For one process that is alone in its slice,
the count is the same each time, to within a few instructions.
"""

import contextlib
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.results import Row, middle_half, write
from hami_py._native import LimitsPage
from support import artifacts, slices
from support.artifacts import Artifacts
from support.running import Started
from support.slices import GIB

PAIRS = 15
EXECS = 200
RESIZES = 25
PRELOAD = "LD_PRELOAD"
COMMAND = "make bench"

#: Percent: a limit, of which launches of kernels that take no time leave all the credit there is.
SHARE = 99

#: PTX with the kernel "empty".
IMAGE = Path(__file__).parents[1] / "gpu" / "programs" / "plain.ptx"

#: The launches of `calls.c`.
LAUNCHES = {
    "launch": "launch",
    "launch_two": "launch of two kernels by turns",
    "launch_64": "launch of 64 kernels in a cycle",
    "launch_configured": "cuLaunchKernelEx",
    "launch_own_stream": "launch into the own stream of a thread",
}

#: The other calls of `calls.c`, apart from cuInit, which it always makes.
OTHERS = ("alloc_free", "map_unmap", "array_create_destroy", "memory_info", "free_20000_live")

#: A release of exported memory, by how many allocations are exported; a small card has not so many.
RELEASES = {10: 2000, 4000: 10_000}
"""The targets in nanoseconds."""

Environment = Mapping[str, str]
Measure = Callable[[Environment], dict[str, float]]


@dataclass(frozen=True)
class Environments:
    """The same driver, without and with us."""

    bare: Environment
    preloaded: Environment
    """With the library, in no slice."""
    limited: Environment
    """In a slice with a limit on memory."""
    shared: Environment
    """In a slice with a share of the card's time."""


@dataclass(frozen=True)
class Plan:
    """How much to measure, which depends on how long a driver takes for a call.

    ``part`` divides the number of calls; ``holders`` are how many more processes hold memory. Each
    group of rows has as many ``pairs`` as fit into its ``seconds``, and at least one.
    """

    command: str
    pairs: int = PAIRS
    part: int = 1
    holders: int = 63
    seconds: float = math.inf


def main() -> None:
    """Measures and writes docs/results/calls."""
    built = artifacts.find()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        program = _compile(built, folder / "calls")
        # A small card: valgrind has no room for the addresses of a large one.
        bare = {"LD_LIBRARY_PATH": str(built.stub_dir), "STUB_GPU_PROFILE": "t4"}
        preloaded = {**bare, "LD_PRELOAD": str(built.library)}
        environments = Environments(
            bare,
            preloaded,
            {**bare, **slices.environment(built.library, _slice(folder / "slice", bare))},
            {**bare, **slices.environment(built.library, _slice(folder / "shared", bare, SHARE))},
        )
        counted = list(_counted(program, environments))
        counted += _resizes(program, folder / "resized", preloaded)
        rows = [row for part in measure(program, environments, Plan(COMMAND)) for row in part]
    rows += counted
    write("calls", "What our part of a call costs", rows)


def measure(program: Path, environments: Environments, plan: Plan) -> Iterator[list[Row]]:
    """The rows, group by group, so that those which are there are not lost with the next.

    Each group makes only the calls of its rows: a real driver needs seconds for all of them.
    """
    bare, limited = environments.bare, environments.limited

    def calls(*names: str) -> Measure:
        return lambda environment: _calls(program, environment, plan, names)

    def row(name: str, values: list[float], unit: str, target: float | None) -> Row:
        return _row(name, values, unit, target, plan.command)

    without_limit = _differences(calls("launch", "alloc_free"), bare, environments.preloaded, plan)
    yield [
        row("launch, no limit", without_limit["launch"], "ns", 1),
        row("alloc + free, no limit", without_limit["alloc_free"], "ns", 150),
    ]
    with_limit = _differences(calls("launch", *OTHERS), bare, limited, plan)
    yield [
        row("launch, limited in memory only", with_limit["launch"], "ns", 10),
        row("alloc + free, limited, 1 process", with_limit["alloc_free"], "ns", 150),
        row("free with 20,000 live, limited", with_limit["free_20000_live"], "ns", 100),
        row("create + map + unmap + release, limited", with_limit["map_unmap"], "ns", 500),
        row("array create + destroy, limited", with_limit["array_create_destroy"], "ns", None),
        row("cuMemGetInfo, limited", with_limit["memory_info"], "ns", 100),
        row("added to cuInit, limited", [value / 1e6 for value in with_limit["cuinit"]], "ms", 1),
    ]
    released = _differences(
        calls(*(f"release_{exported}_exported" for exported in RELEASES)), bare, limited, plan
    )
    yield [
        row(f"release of exported memory, {exported:,} exported", values, "ns", target)
        for exported, target in RELEASES.items()
        if (values := released.get(f"release_{exported}_exported"))
    ]
    with_share = _differences(calls(*LAUNCHES), bare, environments.shared, plan)
    yield [
        row(f"{name}, limited with credit", with_share[call], "ns", 50)
        for call, name in LAUNCHES.items()
    ]
    load = _differences(_exec, bare, environments.preloaded, plan)
    yield [row("load into a process", load["exec"], "ms", 0.2)]
    # Last: an account stays as wide as it once was.
    with _holders(program, limited, plan.holders):
        crowded = _differences(calls("alloc_free"), bare, limited, plan)
    many = f"alloc + free, limited, {plan.holders + 1} processes"
    yield [row(many, crowded["alloc_free"], "ns", 250)]


def alone(program: Path, bare: Environment, plan: Plan) -> list[Row]:
    """The time that the driver itself takes for the same calls, to compare with our part."""
    found = _repeated(lambda: _calls(program, bare, plan, ()), plan)
    return [
        Row(
            f"{name.replace('_', ' ')}, driver alone",
            round(statistics.median(values), 1),
            "ns",
            round(middle_half(values), 1),
            len(values),
            None,
            "lower",
            plan.command,
        )
        for name, values in found.items()
    ]


def _differences(
    measure: Measure, bare: Environment, other: Environment, plan: Plan
) -> dict[str, list[float]]:
    def pair() -> dict[str, float]:
        before, after = measure(bare), measure(other)
        return {name: value - before[name] for name, value in after.items()}

    return _repeated(pair, plan)


def _repeated(measure: Callable[[], dict[str, float]], plan: Plan) -> dict[str, list[float]]:
    """The values of several measurements, as many as the plan has time for."""
    found: dict[str, list[float]] = {}
    begin = time.monotonic()
    for done in range(plan.pairs):
        if done and (time.monotonic() - begin) * (done + 1) / done > plan.seconds:
            break
        for name, value in measure().items():
            found.setdefault(name, []).append(value)
    return found


def _calls(
    program: Path, environment: Environment, plan: Plan, names: Sequence[str]
) -> dict[str, float]:
    """Nanoseconds of these calls, or of all."""
    command = [str(program), "all", str(IMAGE), str(plan.part), *names]
    lines = _output(command, environment).splitlines()
    return {name: float(value) for name, value in map(str.split, lines)}


@contextlib.contextmanager
def _holders(program: Path, environment: Environment, count: int) -> Iterator[None]:
    """So many more processes that hold memory of the slice."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            started = stack.enter_context(Started([program, "hold", IMAGE], environment))
            started.wait_for("holding")
        yield


def _exec(environment: Environment) -> dict[str, float]:
    """Milliseconds to run /bin/true, which loads the library and calls nothing."""
    start = time.perf_counter()
    for _ in range(EXECS):
        _output(["/bin/true"], environment)
    return {"exec": (time.perf_counter() - start) * 1e3 / EXECS}


def _instructions(program: Path, name: str, environment: Environment) -> float:
    """Instructions per call: the difference of two runs cancels what is not the call."""
    few, many = 1000, 3000
    return (_count(program, name, many, environment) - _count(program, name, few, environment)) / (
        many - few
    )


def _count(program: Path, name: str, calls: int, environment: Environment) -> int:
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", str(program)]
    done = subprocess.run(
        [*command, name, str(IMAGE), str(calls)],
        env={"PATH": os.environ["PATH"], **environment},
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    found = re.search(r"Collected : (\d+)", done.stderr)
    assert found, done.stderr
    return int(found[1])


def _resizes(program: Path, directory: Path, preloaded: Environment) -> Iterator[Row]:
    """How long after a change of the page a running program gets more, or less.

    The program has the first limit in its environment as well, as containers do.
    """
    slice_path = _slice(directory, {name: preloaded[name] for name in preloaded if name != PRELOAD})
    (uuid,) = (row.uuid for row in LimitsPage.open(slice_path / "limits").rows())
    slices.inject(slice_path, uuid, memory=8 * GIB)
    page = LimitsPage.open(slice_path / "limits")
    environment = {
        **preloaded,
        **slices.environment(Path(preloaded[PRELOAD]), slice_path),
        "CUDA_DEVICE_MEMORY_LIMIT": "8g",
    }
    late: dict[str, list[float]] = {"granted": [], "refused": []}
    with Started([program, "watch", IMAGE, str(9 * 1024)], environment) as watching:
        assert watching.next_line().startswith("refused")
        for _ in range(RESIZES):
            for expected, limit in (("granted", 10 * GIB), ("refused", 8 * GIB)):
                begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
                page.set_memory_limits({uuid: limit})
                seen, at = watching.next_line().split()
                assert seen == expected
                late[expected].append((float(at) - begin) / 1e6)
        watching.kill()
    yield _row("a limit that grows takes effect", late["granted"], "ms", 100, COMMAND)
    yield _row("a limit that shrinks takes effect", late["refused"], "ms", 100, COMMAND)


def _counted(program: Path, environments: Environments) -> Iterator[Row]:
    """Not of launches under a share: there a thread that meters them would be counted too."""
    for what, name in (
        ("launch", "launch"),
        ("alloc + free", "alloc_free"),
        ("memory info", "memory_info"),
    ):
        bare, limited = (
            _instructions(program, name, environment)
            for environment in (environments.bare, environments.limited)
        )
        count = round(limited - bare, 1)
        yield Row(f"{what}, limited", count, "instructions", None, 1, None, "lower", COMMAND)


def _row(name: str, values: list[float], unit: str, target: float | None, command: str) -> Row:
    spread, middle = middle_half(values), statistics.median(values)
    is_missed = target is not None and middle > target
    note = "missed" if is_missed else "within the noise" if abs(middle) < spread else ""
    return Row(
        name, round(middle, 3), unit, round(spread, 3), len(values), target, "lower", command, note
    )


def _slice(directory: Path, bare: Environment, share: int | None = None) -> Path:
    """A slice of 8 GiB on the card of the in-process stub, or one of a share of its time."""
    listing = (
        "import pynvml as n; n.nvmlInit(); "
        "print(n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(0)))"
    )
    uuid = _output([sys.executable, "-c", listing], bare).strip()
    return slices.make(directory, {uuid: None if share else 8 * GIB}, share)


def _compile(built: Artifacts, target: Path) -> Path:
    source = Path(__file__).with_name("calls.c")
    command = ["gcc", "-O2", "-o", str(target), str(source), f"-L{built.stub_dir}", "-lcuda"]
    subprocess.run(command, check=True, timeout=60)
    return target


def _output(command: list[str], environment: Environment) -> str:
    return subprocess.run(
        command,
        env={"PATH": os.environ["PATH"], **environment},
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    ).stdout
