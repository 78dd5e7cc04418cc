"""Limits hold for processes whose clocks are shifted: by a preloaded library, or a time namespace.

The processes of a slice, and those of its neighbours, compare times. The ledger is the oracle.
"""

import contextlib
import json
import os
import subprocess
import sys
import time

import pytest

from support import coordinator
from support.artifacts import ROOT
from support.console import SUCCESS, Console
from support.launcher import BEGIN, until
from support.slices import GIB, make

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes time namespaces")

NAMESPACES = {
    f"a time namespace, {seconds:+} s": [
        "unshare",
        "--time",
        f"--monotonic={seconds}",
        f"--boottime={seconds}",
        "--fork",
        "--kill-child",
    ]
    for seconds in (86400, -60)
}
SHIFTED = {"a preloaded library": [], **NAMESPACES}


@pytest.fixture(params=SHIFTED)
def shifted(program, request):
    """`shifted(env)`: command and environment of a program with such a clock."""

    def variables(env):
        if SHIFTED[request.param]:
            return SHIFTED[request.param], env
        preload = f"{program('shifted_clock')}:{env['LD_PRELOAD']}" if "LD_PRELOAD" in env else ""
        return [], {**env, "LD_PRELOAD": preload or str(program("shifted_clock"))}

    return variables


def test_memory_of_a_dead_process_is_free_when_the_driver_has_freed_it(
    stub_server, program, preload, tmp_path, shifted
):
    """The driver needs 0.6 s. The grace period is 0.75 s from the first notice of the death."""
    gpu = stub_server("a100", free_delay_ms=600)
    env = preload(gpu, make(tmp_path / "slice", {gpu.uuids()[0]: GIB}))
    prefix, other = shifted(env)
    with (
        Console(program("console"), env) as survivor,
        Console(program("console"), other, prefix=prefix) as away,
        Console(program("console"), env) as worker,
    ):
        for console in (survivor, away, worker):
            console.do("init", "device 0")
        worker.do("alloc a 768M")
        worker.kill()
        until(lambda: survivor.value("info", "free") == GIB, "nobody notices the death")
        until(lambda: away("alloc a 512M") == SUCCESS, "the memory is never free")
        survivor.do("alloc a 512M")
    assert gpu.peak() <= GIB


@pytest.mark.parametrize("shifted", NAMESPACES, indirect=True)
def test_processes_of_a_slice_divide_its_share(stub_server, program, tmp_path, shifted):
    """Each of two processes has 5 s of work. They are compared when 2 s of it are done."""
    gpu = stub_server("a100")
    env = {**gpu.env, "PYTHONPATH": str(ROOT), "HAMI_RUNTIME_DIR": str(tmp_path)}
    run = [sys.executable, "-m", "hami_py", "run"]
    prefix, other = shifted(env)
    ways = [
        (env, [*run, "--name", "both", "--gpucores", "60", "--"]),
        (other, [*prefix, *run, "--join", "both", "--"]),
    ]

    def busy():
        rows = [row for row in gpu.ledger()["processes"] if row["library"] == "cuda"]
        return [row["cards"][0]["busy_ns"] / 1e9 for row in rows]

    with contextlib.ExitStack() as programs:
        programs.callback(coordinator.end, tmp_path / "hami")
        both = []
        for variables, words in ways:
            console = Console(program("console"), variables, prefix=words)
            both.append(programs.enter_context(console))
            console.do(*BEGIN, "kernel k m k_5000us")
        for _ in range(1000):
            for console in both:
                console.tell("launch cuLaunchKernel k s0")
        until(lambda: sum(busy()) >= 2, lambda: f"the programs had {busy()} s")
        assert min(busy()) >= 0.5, busy()


@pytest.mark.parametrize("shifted", NAMESPACES, indirect=True)
def test_a_slice_was_last_used_when_its_program_last_worked(
    stub_server, program, tmp_path, shifted
):
    gpu = stub_server("a100")
    env = {**gpu.env, "PYTHONPATH": str(ROOT), "HAMI_RUNTIME_DIR": str(tmp_path)}
    hami = [sys.executable, "-m", "hami_py"]

    def card():
        listed = subprocess.run([*hami, "ps", "--json"], env=env, capture_output=True, check=True)
        (slice_,) = json.loads(listed.stdout)
        return slice_["cards"][0]

    prefix, other = shifted(env)
    with contextlib.ExitStack() as programs:
        programs.callback(coordinator.end, tmp_path / "hami")
        words = [*prefix, *hami, "run", "--gpucores", "60", "--"]
        console = programs.enter_context(Console(program("console"), other, prefix=words))
        began = time.time()
        console.do(*BEGIN, "kernel k m k_5000us", "launch cuLaunchKernel k s0", "sync s0")
        until(lambda: card()["last_used"] is not None, "no time is shown")
        # The two clocks are not read at the same moment.
        assert began - 1 <= card()["last_used"] <= time.time() + 1
