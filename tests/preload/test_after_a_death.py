"""A request after a worker's death needs nothing of its process: no loader, no NVML, no descriptor.

Two programs are in a slice of `hami run`. One dies, and the other one requests its memory.
"""

import sys

import pytest

from support.artifacts import ROOT
from support.console import OUT_OF_MEMORY, SUCCESS, Console
from support.launcher import until
from support.slices import GIB


@pytest.fixture
def pair(gpu, program, tmp_path):
    """The survivor, and a worker that holds three quarters of their GiB."""
    env = {
        **gpu.env,
        "PYTHONPATH": str(ROOT),
        "HAMI_RUNTIME_DIR": str(tmp_path),
        "HAMI_CONTEXT_MEMORY": "0",
    }

    def console(*options):
        prefix = [sys.executable, "-m", "hami_py", "run", *options, "--"]
        started = Console(program("console"), env, prefix=prefix)
        started.do("init", "device 0")
        return started

    with (
        console("--gpumem", "1GiB", "--name", "both") as survivor,
        console("--join", "both") as worker,
    ):
        worker.do("alloc a 768M")
        assert survivor("alloc a 512M") == OUT_OF_MEMORY
        yield survivor, worker


def gets_the_memory(gpu, survivor, worker):
    worker.kill()
    until(lambda: survivor("alloc a 512M") == SUCCESS, "the memory of the dead is never free")
    survivor.do("alloc b 512M")
    assert gpu.peak() == GIB


def test_another_thread_holds_the_loader(gpu, program, pair):
    """It waits in a plugin's constructor until the survivor has its memory, or for 20 s."""
    survivor, worker = pair
    survivor.do(f"hold_loader {program('plugin_that_waits')}")
    gets_the_memory(gpu, survivor, worker)
    survivor.do("info", "release_loader")


def test_nvml_hangs(gpu, pair):
    """As it does if a card has failed. The grace period decides then."""
    survivor, worker = pair
    for symbol in ("nvmlInit_v2", "nvmlDeviceGetComputeRunningProcesses_v3"):
        gpu.control({"command": "slow", "symbol": symbol, "us": 600_000_000})
    gets_the_memory(gpu, survivor, worker)


def test_the_process_has_no_descriptor_left(gpu, pair):
    survivor, worker = pair
    survivor.do("use_descriptors")
    gets_the_memory(gpu, survivor, worker)
