"""Running real CUDA programs under `hami run`: the same for the demo and for the tests."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from support.running import Run
from support.stub import StubServer

PROGRAMS = Path(__file__).parent / "programs"

#: Seconds that a client may take, or four of it; numba compiles a kernel first.
DEADLINE = 100.0

#: Engine time in nanoseconds that a slice may have had before its time: it saves up 100 ms, a turn
#: is 20 ms, and the first kernels take longer than predicted.
AHEAD_NS = 160_000_000

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class Client:
    """A program that allocates through the library of another project.

    ``out_of_memory`` is the text of that library for CUDA's out-of-memory error.
    """

    name: str
    program: str
    out_of_memory: str
    limit: int
    """Bytes, for the demo: every client has another one."""
    allocates_by: tuple[str, ...] = ("cuMemAlloc_v2",)
    """The driver's functions that it takes device memory with."""
    step: int = 4 * MIB
    """Bytes that may be left of a limit when it is refused the least that it asks for."""
    refills: bool = False
    """Whether a block that it drops returns to the driver, so that it can fill its limit twice."""
    module: str | None = None
    """The module that the demo's environment may lack."""


CLIENTS = (
    Client("cuda-bindings", "with_cuda_bindings.py", "CUDA_ERROR_OUT_OF_MEMORY", 4 * GIB),
    Client(
        "cuda.core",
        "with_cuda_core.py",
        "CUDA_ERROR_OUT_OF_MEMORY",
        2560 * MIB,
        allocates_by=("cuMemAllocFromPoolAsync",),
        # A pool grows by 32 MiB.
        step=32 * MIB,
    ),
    Client(
        "cuda-bindings, VMM",
        "with_virtual_memory.py",
        "CUDA_ERROR_OUT_OF_MEMORY",
        3584 * MIB,
        allocates_by=("cuMemCreate", "cuMemMap"),
        refills=True,
    ),
    Client("numba-cuda", "with_numba.py", "CUDA_ERROR_OUT_OF_MEMORY", 3000 * MIB, module="numba"),
    Client("tinygrad", "with_tinygrad.py", "CUDA Error 2", 1536 * MIB),
)
MONITORS = ("nvitop", "gpustat", "nvidia-ml-py")
#: Only on a GPU: its CUDA runtime asks a driver for proof that it is NVIDIA's.
TORCH = Client("PyTorch", "with_torch.py", "OutOfMemoryError", 6 * GIB)


def hami(*arguments: str) -> list[str]:
    """The command line of hami, as installed beside this Python."""
    return [str(Path(sys.executable).with_name("hami")), *arguments]


def limited(limit: int, command: Sequence[str], *options: str) -> list[str]:
    """The command under a limit in bytes on every card, and with other options of `hami run`."""
    return hami("run", "--gpumem", f"{limit // MIB}MiB", *options, "--", *command)


def python(program: str, *arguments: str, interpreter: str = sys.executable) -> list[str]:
    """A program of this folder."""
    return [interpreter, str(PROGRAMS / program), *arguments]


def together(processes: int, program: str, *arguments: str) -> list[str]:
    """So many of a program of this folder at once; their reports are one list."""
    return python("together.py", str(processes), str(PROGRAMS / program), *arguments)


def is_installed(client: Client) -> bool:
    """Whether this Python has what the client needs."""
    return client.module is None or find_spec(client.module) is not None


def python_with(module: str) -> str | None:
    """A Python of this machine that has a module: this one or the one on the PATH."""
    for interpreter in filter(None, (sys.executable, shutil.which("python3"))):
        command = [interpreter, "-c", f"import {module}"]
        done = subprocess.run(command, capture_output=True, timeout=DEADLINE, check=False)
        if done.returncode == 0:
            return interpreter
    return None


def report(command: Sequence[str], environment: Mapping[str, str]) -> Any:
    """The output of a client; if it failed, its standard error is shown."""
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    return last_report(Run(done.returncode, done.stdout, done.stderr))


def last_report(done: Run) -> Any:
    """The JSON on the last line that a client printed."""
    if done.code != 0:
        raise RuntimeError(f"a client ended with {done.code}\n{done.err}")
    return json.loads(done.lines[-1])


@dataclass(frozen=True)
class Engine:
    """The busy time of a card's compute engine by the ledger, from first to last kernel."""

    busy_ns: int
    span_ns: int

    def within(self, percent: int) -> bool:
        """Whether that is a share. Saved time and one turn may have been used early.

        A program that is late makes the interval longer, so a busy machine cannot break this check.
        """
        return self.busy_ns <= self.span_ns * percent // 100 + AHEAD_NS

    def makes_use_of(self, percent: int) -> bool:
        """Whether a member that always has work got at least half of its share.

        This is only a plausibility check: on a busy machine a program does not always have work.
        """
        return self.busy_ns >= self.span_ns * percent // 200


def engine(gpu: StubServer) -> Engine:
    """Of the first card, all processes together."""
    history = gpu.control({"command": "history"})
    buckets = sorted(
        bucket for process in history["processes"] for bucket in process["cards"][0]["buckets"]
    )
    span = buckets[-1][0] + history["bucket_ns"] - buckets[0][0]
    return Engine(sum(busy for _start, busy in buckets), span)


def launched(gpu: StubServer) -> dict[str, int]:
    """How often each kernel has reached the device, all processes together."""
    total: dict[str, int] = {}
    for process in gpu.ledger()["processes"]:
        for card in process["cards"]:
            for name, use in card["by_kernel"].items():
                total[name] = total.get(name, 0) + use["launched"]
    return total


def stop(gpu: StubServer) -> int:
    """Stop the one CUDA program that runs, so that account and ledger are read at one instant."""
    (pid,) = (
        process["pid"]
        for process in gpu.ledger()["processes"]
        if process["library"] == "cuda" and process["state"] == "alive"
    )
    os.kill(pid, signal.SIGSTOP)
    status = Path(f"/proc/{pid}/stat")
    gpu.wait_until(lambda _: status.read_text().rpartition(")")[2].split()[0] == "T")
    return int(pid)
