#!/usr/bin/env python3
"""Tests and measures hami-py on this machine's GPU: `python3 run.py all --out DIR`.

Needs CPython 3.10 or newer and nothing else: no network, no pip, no compiler, no pytest. Everything
else is in the same folder and is unpacked there, or into a temporary directory if the folder cannot
be written. Nothing is installed. Every part that was started leaves results, also if it failed or
ran out of time.

Exit codes: 0 all is well, 1 something failed, 2 the command line is not understood, 3 there is no
GPU (and no --stub).
"""

import argparse
import ctypes
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

KIT = Path(__file__).resolve().parent

NO_GPU = 3

#: Seconds for each part of `all`: 18 minutes together, 14 of them for the measures.
DEADLINES = {"tests": 270.0, "memory": 100.0, "calls": 150.0, "share": 330.0, "interactive": 240.0}

#: Seconds for the part that needs root, and what `make gpu-pods` makes.
PODS = 240.0

#: The parts that each word of the command line runs.
PARTS = {
    "test": ["tests"],
    "bench": [part for part in DEADLINES if part != "tests"],
    "all": [*DEADLINES],
    "pods": ["pods"],
    **{part: [part] for part in DEADLINES if part != "tests"},
}

#: Seconds that a part has to clean up when its time is over.
GRACE = 10.0

#: The variables of the caller's environment that must not affect the tests.
OURS = ("LD_PRELOAD", "HAMI_SLICE", "PYTHONPATH", "PYTHONHOME", "PYTEST_ADDOPTS")

_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Job:
    """The settings that all parts share."""

    card: str
    """``stub`` or ``gpu``."""
    out: Path
    head: Path
    """The file that describes the machine."""
    environment: dict[str, str]


def main() -> int:
    """Runs the parts that the command line names."""
    options = _options()
    problem = _unfit()
    if problem:
        print(f"run.py: {problem}", file=sys.stderr)
        return 1
    if not options.stub:
        missing = no_gpu()
        if missing:
            print(f"no GPU: {missing}; `--stub` runs on the stub driver instead")
            return NO_GPU
    _make_executable()
    out = Path(options.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    # Processes that a part leaves behind become our children, so that they can be ended.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory(prefix="gpu-kit-") as scratch:
        card = "stub" if options.stub else "gpu"
        environment = _environment(_unpack(Path(scratch)), card)
        job = Job(card, out, Path(scratch) / "head.json", environment)
        return _run(job, options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Tests and measures hami-py on this machine's GPU.",
        epilog="exit code 3: no GPU, and --stub was not given",
    )
    parser.add_argument("what", choices=PARTS)
    parser.add_argument("--stub", action="store_true", help="on the stub driver, without a GPU")
    parser.add_argument("--out", default="gpu-results", help="the folder for results")
    parser.add_argument(
        "--parts",
        default=str(KIT.parent / "gpu-pods"),
        help="what `make gpu-pods` made, for `pods`; default: gpu-pods beside the kit",
    )
    parser.add_argument(
        "--deadline", type=float, help="seconds for each part, instead of the part's own number"
    )
    return parser.parse_args()


def _unfit() -> str | None:
    about = _about()
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if platform.machine() != about["machine"]:
        return f"this kit is for {about['machine']}, this machine is {platform.machine()}"
    if platform.python_implementation() != "CPython" or version not in about["wheels"]:
        return f"this kit has wheels for CPython {', '.join(about['wheels'])}, this is {version}"
    if platform.libc_ver()[0] != "glibc":
        return "it needs a system with glibc"
    return None


def _about() -> dict:
    return json.loads((KIT / "kit.json").read_text())


def no_gpu() -> str | None:
    """Why the tests cannot run on a GPU here; None = they can. Checked in another process."""
    program = (
        "import ctypes, sys\n"
        "try: cuda = ctypes.CDLL('libcuda.so.1')\n"
        "except OSError as error: sys.exit(str(error))\n"
        "result, count = cuda.cuInit(0), ctypes.c_int()\n"
        "if result: sys.exit(f'cuInit gives CUresult {result}')\n"
        "cuda.cuDeviceGetCount(ctypes.byref(count))\n"
        "sys.exit(None if count.value else 'the driver shows no device')\n"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
        )
    except subprocess.TimeoutExpired:
        return "the driver does not answer within 60 s"
    return (done.stderr.strip() or "the driver does not answer") if done.returncode else None


def _make_executable() -> None:
    """Makes the programs executable, because some ways to copy a folder lose file modes."""
    for path in [*(KIT / "programs").iterdir(), KIT / "stub" / "stub-gpu"]:
        if not os.access(path, os.X_OK):
            path.chmod(0o755)


def _unpack(scratch: Path) -> Path:
    """Unpacks the wheels of this Python; returns the folder for imports."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    wheels = [KIT / "wheels" / name for name in _about()["wheels"][version]]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in wheels)).hexdigest()[:12]
    site = KIT / "site" / f"{version}-{digest}"
    if site.exists():
        return site
    try:
        site.parent.mkdir(exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=site.parent))
    except OSError:
        fresh = site = scratch / "site"
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(fresh)
    if fresh != site:
        try:
            # Complete or not at all, also if two runs start at once.
            fresh.rename(site)
        except OSError:
            shutil.rmtree(fresh)
    return site


def _environment(site: Path, card: str) -> dict[str, str]:
    environment = {key: value for key, value in os.environ.items() if key not in OURS}
    environment.setdefault("PATH", os.defpath)
    environment |= {
        "PYTHONPATH": os.pathsep.join([str(KIT / "tests"), str(site)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        # The machine's pytest plugins must not affect the tests.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "HAMI_TEST_STUB_DIR": str(KIT / "stub"),
        "HAMI_TEST_LIBRARY": str(site / "hami_py" / "lib" / "libvgpu.so"),
    }
    if card == "stub":
        environment["LD_LIBRARY_PATH"] = str(KIT / "stub")
        environment["STUB_GPU_PROFILE"] = "a100"
    return environment


def _run(job: Job, options: argparse.Namespace) -> int:
    started = time.monotonic()
    head = _head(job, options)
    print(f"{head['card']}, driver {head['driver']}, CUDA {head['cuda']}; results in {job.out}")
    results = []
    for part in PARTS[options.what]:
        deadline = options.deadline or DEADLINES.get(part, PODS)
        print(f"\n== {part}, at most {deadline:.0f} s", flush=True)
        begun = time.monotonic()
        command = _command(job, part, options)
        ended = _bounded(command, job.environment, deadline)
        result = {"part": part, "ended": ended, "seconds": round(time.monotonic() - begun, 1)}
        if part == "tests":
            result |= _report_tests(job, head, ended)
        results.append(result)
    summary = {**head, "seconds": round(time.monotonic() - started, 1), "parts": results}
    (job.out / "gpu-summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    print()
    for result in results:
        print(" ".join(f"{key}={value}" for key, value in result.items()))
    return 0 if all(result["ended"] == "well" for result in results) else 1


def _head(job: Job, options: argparse.Namespace) -> dict:
    command = f"python3 run.py {options.what}{' --stub' if options.stub else ''}"
    done = subprocess.run(
        [sys.executable, "-S", "-m", "gpu.head", _about()["commit"], command],
        env=job.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode == 0:
        head = json.loads(done.stdout)
    else:
        # Without NVML nothing else works either, but the results must report that.
        print(done.stderr, file=sys.stderr)
        unknown = dict.fromkeys(("machine", "card", "driver", "cuda"), "unknown: NVML fails")
        head = {**unknown, "commit": _about()["commit"], "command": command}
    if job.card == "stub":
        head["card"] = f"stub of {head['card']}"
    job.head.write_text(json.dumps(head))
    return head


def _command(job: Job, part: str, options: argparse.Namespace) -> list[str]:
    if part == "tests":
        return _tests(job)
    if part == "pods":
        return _pods(job, Path(options.parts).resolve())
    return _measures(job, part)


def _pods(job: Job, parts: Path) -> list[str]:
    return [
        *(sys.executable, "-S", "-m", "gpu.pods", "--parts", str(parts), "--card", job.card),
        *("--built", str(KIT / "programs"), "--out", str(job.out), "--head", str(job.head)),
        *("--python-path", os.environ.get("PYTHONPATH", "")),
    ]


def _tests(job: Job) -> list[str]:
    # -S: installed packages of the machine must not hide a package that the kit lacks.
    return [
        *(sys.executable, "-S", "-m", "pytest", str(KIT / "tests" / "gpu")),
        *("-c", str(KIT / "tests" / "gpu" / "kit.ini"), "--rootdir", str(KIT)),
        *("-p", "pytest_timeout", "-p", "no:cacheprovider", "--tb=short", "-q"),
        *("--card", job.card, "--built", str(KIT / "programs")),
        *("--found", str(_found(job)), "--interpreter", sys.executable),
        *("--python-path", os.environ.get("PYTHONPATH", "")),
    ]


def _found(job: Job) -> Path:
    return job.out / "gpu-tests.jsonl"


def _measures(job: Job, suite: str) -> list[str]:
    return [
        *(sys.executable, "-S", "-m", "gpu.measures", suite, "--card", job.card),
        *("--built", str(KIT / "programs"), "--out", str(job.out)),
        *("--head", str(job.head)),
    ]


def _bounded(command: list[str], environment: dict[str, str], deadline: float) -> str:
    """Runs a part: ``well``, ``exit code N`` or ``out of time``."""
    process = subprocess.Popen(
        command, env=environment, cwd=tempfile.gettempdir(), stdin=subprocess.DEVNULL
    )
    try:
        code = process.wait(timeout=deadline)
        ended = "well" if code == 0 else f"exit code {code}"
    except subprocess.TimeoutExpired:
        ended = "out of time"
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    _end_children()
    return ended


def _end_children() -> None:
    """Ends processes that the part has left behind, so that the card is free for the next part."""
    until = time.monotonic() + GRACE
    while time.monotonic() < until:
        children = [child for child in map(_child, Path("/proc").glob("[0-9]*")) if child]
        if not children:
            return
        for child in children:
            try:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, os.WNOHANG)
            except (ProcessLookupError, ChildProcessError):
                continue
        # A process whose memory the driver is still freeing takes a moment to end.
        time.sleep(0.02)


def _child(process: Path) -> int | None:
    """The process's number, if it is a child of ours."""
    try:
        after_name = (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(process.name) if int(after_name[1]) == os.getpid() else None


def _report_tests(job: Job, head: dict, ended: str) -> dict:
    """Makes a JSON file and a table of the tests' findings; returns the counts by outcome."""
    path = _found(job)
    tests = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    path.unlink(missing_ok=True)
    counts: dict = {}
    for test in tests:
        counts[test["outcome"]] = counts.get(test["outcome"], 0) + 1
    document = {**head, "ended": ended, "counts": counts, "tests": tests}
    (job.out / "gpu-tests.json").write_text(json.dumps(document, indent=2) + "\n")
    lines = [
        "# The tests on a card",
        "",
        f"{head['card']}; driver {head['driver']}; cuda {head['cuda']}; commit {head['commit']}. "
        f"Run by `{head['command']}`, which ended: {ended}.",
        "",
        "| test | outcome | s | |",
        "|---|---|---|---|",
        *(_row(test) for test in tests),
    ]
    (job.out / "gpu-tests.md").write_text("\n".join(lines) + "\n")
    return counts


def _row(test: dict) -> str:
    notes = [f"{name}: {_short(value)}" for name, value in test["notes"].items()]
    said = "; ".join(filter(None, [test["reason"], *notes])).replace("|", "\\|")
    return f"| `{test['name']}` | {test['outcome']} | {test['seconds']} | {said} |"


def _short(value: object) -> str:
    if not isinstance(value, list):
        return str(value)
    more = f" and {len(value) - 5} more" if len(value) > 5 else ""
    return ", ".join(map(str, value[:5])) + more or "none"


if __name__ == "__main__":
    sys.exit(main())
