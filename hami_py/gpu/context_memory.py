"""Measures what a context takes of a card, in processes that do nothing else (``context_sample``).

A sample is the growth of NVML's "used" from before ``cuInit`` until the process has a primary
context. NVML also has a figure for each process, which is less: on an H100 and an H200 with driver
580 the card grows by 552,402,944 bytes for the first process and by 548,995,072 bytes for the next,
and NVML's figure for the process is 543,162,368 bytes both times (rows "probe process" in
docs/results/h100/gpu-memory.md). A limit is about what the card loses, so the growth counts. But
the growth includes what other processes allocate or free meanwhile. So a sample is used only if it
is at most 32 MiB more than the figure for the process, and not less; and the result is the first
growth that two samples agree on, to the byte. On both cards all samples were equal. The 3.25 MiB
that the driver takes of a card once are in the result only if no other process uses the card.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from hami_py.config import VISIBLE_DEVICES
from hami_py.errors import DriverError
from hami_py.gpu.processes import not_listed

DEADLINE_S = 20.0
"""Seconds for all samples of a card. One takes a second at most on a driver that is in use; without
persistence mode the driver needs some seconds to initialise the card."""

ROOM = 1 << 30
"""Bytes that must be free. The largest known context takes half of it."""

_PROGRAM = "hami_py.gpu.context_sample"
_SAMPLES = 6
_BEYOND = 32 << 20
_MIB = 1 << 20


def measure(uuid: str, environment: Mapping[str, str], deadline_s: float = DEADLINE_S) -> int:
    """The memory that a context takes of a card, in bytes, rounded up to a MiB.

    Raises:
        DriverError: it cannot be measured now.
    """
    until = time.monotonic() + deadline_s
    seen: set[int] = set()
    for _ in range(_SAMPLES):
        growth, of_process = _sample(uuid, environment, until)
        if of_process is not None and not of_process <= growth <= of_process + _BEYOND:
            continue
        if growth > 0 and growth in seen:
            return -(-growth // _MIB) * _MIB
        seen.add(growth)
    raise _failed(uuid, f"no two of {_SAMPLES} samples agree")


def _sample(uuid: str, environment: Mapping[str, str], until: float) -> tuple[int, int | None]:
    """The growth of the card for a process, and NVML's figure for it.

    Raises:
        DriverError: the process fails, or does not end in time.
    """
    command = [sys.executable, "-m", _PROGRAM, uuid]
    try:
        with (
            _started(command, _unlimited(environment, uuid)) as process,
            not_listed(process.pid),
        ):
            out, err = process.communicate(timeout=max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired as error:
        raise _failed(uuid, "the process that measures does not end in time") from error
    except OSError as error:
        raise _failed(uuid, error.strerror or str(error)) from error
    try:
        sample = json.loads(out)
        return sample["growth"], sample["of_process"]
    except (ValueError, KeyError, TypeError) as error:
        lines = err.strip().splitlines()
        why = lines[-1] if lines else f"exit code {process.returncode}"
        raise _failed(uuid, why) from error


@contextmanager
def _started(command: list[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A process that is killed at the end, and not waited for if the driver keeps it.

    Its directory is the one with this package: ``-m`` looks there first, not where a user is.
    """
    process = subprocess.Popen(
        command,
        env=environment,
        cwd=Path(__file__).parents[2],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def _unlimited(environment: Mapping[str, str], uuid: str) -> dict[str, str]:
    """The environment for a process that has no limits and sees one card.

    All of CUDA's variables are left out: some change what a context takes.
    """
    ours = ("HAMI_", "CUDA_")
    rest = {
        name: value
        for name, value in environment.items()
        if not name.startswith(ours) and name != "LD_PRELOAD"
    }
    return {**rest, VISIBLE_DEVICES: uuid}


def _failed(uuid: str, why: str) -> DriverError:
    fix = "set HAMI_CONTEXT_MEMORY, or ignore it: the table of known cards is used instead"
    return DriverError(f"context memory of card {uuid}", why, fix)
