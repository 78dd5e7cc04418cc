"""Running the doctor's test programs."""

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from hami_py.errors import HamiError

Found = str | tuple[str, str]
"""The result of a check: a description, or a description and a note with a fix."""

DEADLINE = 120
"""Seconds for one program. On a machine with many cards the first context can take tens of them."""

_OUR_LINE = "hami: "
"""The prefix of the line in which the preload library reports why it refuses CUDA."""


def probe(environment: Mapping[str, str], module: str, *arguments: str) -> Any:  # noqa: ANN401
    """Run a test program of ``hami_py.gpu`` and return its report.

    Raises:
        HamiError: it writes no report, or reports a failure.
    """
    name = f"hami_py.gpu.{module}"
    done = run([sys.executable, "-m", name, *arguments], environment)
    try:
        report = json.loads(done.stdout)
    except ValueError as error:
        fix = f"run `{' '.join(['python', '-m', name, *arguments])}` to see why"
        raise HamiError("probe", last_line(done), fix) from error
    if isinstance(report, dict) and report["failed"]:
        errors = done.stderr.splitlines()
        refusals = [line for line in errors if line.startswith(_OUR_LINE)]
        if refusals:
            why = f"the slice refuses CUDA: {refusals[-1].removeprefix(_OUR_LINE)}"
            raise HamiError("probe", why, "fix the problem that the preload library reports")
        raise HamiError("probe", "; ".join([report["failed"], *errors]), report["fix"])
    return report


def run(command: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program to its end.

    Raises:
        HamiError: it does not end in time.
    """
    try:
        return subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        fix = "check `nvidia-smi` and `dmesg`: the driver may hang"
        raise HamiError("probe", f"it did not end within {DEADLINE} s", fix) from error


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """The last line that a failed program wrote, or its exit code."""
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"
