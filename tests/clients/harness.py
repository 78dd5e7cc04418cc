"""Running real CUDA programs under `hami run`: the same for the demo and for the tests."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"

#: Seconds that a client may take; numba compiles a kernel first.
_DEADLINE = 120.0

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class Client:
    """A program that allocates through somebody's library.

    ``out_of_memory`` stands in the library's own words for CUDA's out-of-memory error.
    """

    name: str
    program: str
    out_of_memory: str
    limit: int
    """Bytes, for the demo: every client has another one."""


CLIENTS = (
    Client("cuda-bindings", "with_cuda_bindings.py", "CUDA_ERROR_OUT_OF_MEMORY", 4 * GIB),
    Client("numba-cuda", "with_numba.py", "CUDA_ERROR_OUT_OF_MEMORY", 3000 * MIB),
    Client("tinygrad", "with_tinygrad.py", "CUDA Error 2", 1536 * MIB),
)
MONITORS = ("nvitop", "gpustat")
#: Only on a GPU: its CUDA runtime asks a driver for proof that it is NVIDIA's.
TORCH = Client("PyTorch", "with_torch.py", "OutOfMemoryError", 6 * GIB)


def hami(*arguments: str) -> list[str]:
    """The command line of hami, as installed beside this Python."""
    return [str(Path(sys.executable).with_name("hami")), *arguments]


def limited(limit: int, command: Sequence[str]) -> list[str]:
    """The command under a limit in bytes on every card."""
    return hami("run", "--gpumem", f"{limit // MIB}MiB", "--", *command)


def python(program: str, *arguments: str, interpreter: str = sys.executable) -> list[str]:
    """A program of this folder."""
    return [interpreter, str(PROGRAMS / program), *arguments]


def python_with(module: str) -> str | None:
    """A Python of this machine that has a module: this one or the one on the PATH."""
    for interpreter in filter(None, (sys.executable, shutil.which("python3"))):
        command = [interpreter, "-c", f"import {module}"]
        done = subprocess.run(command, capture_output=True, timeout=_DEADLINE, check=False)
        if done.returncode == 0:
            return interpreter
    return None


def report(command: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any]:
    """What a client printed; its standard error is shown where it failed."""
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=_DEADLINE,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer
