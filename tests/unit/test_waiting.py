"""NVML hangs, as it does while a card fails: what people see, and whether Ctrl-C works.

The stub makes a call of NVML last ten minutes. The kernel says how a command ended.
"""

import os
import signal
import sys

import pytest

from support.running import Started, run
from support.stub import StubServer

HANG = 600_000_000
HAMI = [sys.executable, "-m", "hami_py"]


def environment(gpu: StubServer) -> dict[str, str]:
    names = ("PATH", "HAMI_RUNTIME_DIR", "HAMI_LIBRARY", "PYTHONPATH")
    return {**gpu.env, **{name: os.environ[name] for name in names if name in os.environ}}


@pytest.mark.parametrize("symbol", ["nvmlInitWithFlags", "nvmlDeviceGetMemoryInfo"])
@pytest.mark.parametrize(
    "command",
    [
        ("devices",),
        ("top",),
        ("doctor",),
        ("run", "--gpumem", "1GiB", "--", "true"),
    ],
)
def test_a_command_names_nvml_and_ctrl_c_ends_it(
    stub: StubServer, command: tuple[str, ...], symbol: str
) -> None:
    stub.control({"command": "slow", "symbol": symbol, "us": HANG})
    both = ["sh", "-c", 'exec "$@" 2>&1', "sh"]
    with Started([*both, *HAMI, *command], environment(stub)) as started:
        started.wait_for("hami: waiting for NVML, which has not answered for 2 s")
        os.kill(started.pid, signal.SIGINT)
        # For `hami top`, Ctrl-C is the usual end.
        assert started.finish().code == (0 if command == ("top",) else -signal.SIGINT)


def test_the_list_of_slices_needs_no_nvml(stub: StubServer) -> None:
    variables = environment(stub)
    limits = ("--gpumem", "1GiB", "--device", "1")
    assert run([*HAMI, "run", "--keep", "--name", "a", *limits, "--", "true"], variables).code == 0
    stub.control({"command": "slow", "symbol": "nvmlInitWithFlags", "us": HANG})
    done = run([*HAMI, "ps"], variables)
    assert (done.code, done.err) == (0, "")
    assert done.lines[1].split()[2] == "1"
    assert run([*HAMI, "rm", "a"], variables).code == 0
    done = run([*HAMI, "ps", "--ended"], variables)
    assert (done.code, done.err) == (0, "")
