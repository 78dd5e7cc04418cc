"""Running a program to see what it does: the doctor's evidence."""

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from hami_py.errors import HamiError

Found = str | tuple[str, str]
"""What a check found; where something is known not to be held, with how to fix that."""

DEADLINE = 120
"""Seconds for one program. The first context on a machine with many cards can take tens of them."""

_OUR_LINE = "hami: "
"""How the preload library begins the one line that says why it refuses CUDA."""


def probe(environment: Mapping[str, str], module: str, *arguments: str) -> Any:  # noqa: ANN401
    """What a program of ours in ``hami_py.gpu`` reports.

    Raises:
        HamiError: it reports nothing, or that it failed.
    """
    name = f"hami_py.gpu.{module}"
    done = run([sys.executable, "-m", name, *arguments], environment)
    try:
        report = json.loads(done.stdout)
    except ValueError as error:
        fix = f"run `{' '.join(['python', '-m', name, *arguments])}` to see why"
        raise HamiError("probe", last_line(done), fix) from error
    if isinstance(report, dict) and report["failed"]:
        said = done.stderr.splitlines()
        refusals = [line for line in said if line.startswith(_OUR_LINE)]
        if refusals:
            why = f"the slice refuses CUDA: {refusals[-1].removeprefix(_OUR_LINE)}"
            raise HamiError("probe", why, "fix what the preload library says there")
        raise HamiError("probe", "; ".join([report["failed"], *said]), report["fix"])
    return report


def run(command: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program to its end.

    Raises:
        HamiError: it does not end.
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
        fix = "look at `nvidia-smi` and `dmesg`: the driver may hang"
        raise HamiError("probe", f"no answer within {DEADLINE} s", fix) from error


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """What a program that failed said last."""
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"
