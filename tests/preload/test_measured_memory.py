"""What the driver takes for modules is known only afterwards: the sweeper measures it.

The stub's h200-coarse takes memory for modules; the ledger counts it as `modules`.
"""

import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from hami_py import config
from hami_py._native import Account
from hami_py.slices import measuring
from support import slices
from support.artifacts import ROOT
from support.console import OUT_OF_MEMORY, SUCCESS, Console
from support.launcher import until
from support.running import Started
from support.slices import GIB, MIB

CONTEXT = 527 * MIB
"""Bytes that a context takes on the stub's H200."""

LIMIT = 2 * GIB

GRANULE = 2 * MIB


def whole_granules(size):
    return size // GRANULE * GRANULE


MODULE = "\n".join(
    [
        ".version 8.0",
        ".target sm_80",
        ".address_size 64",
        f".visible .global .align 4 .b8 table[{33 * MIB}];",
        "",
    ]
)
"""PTX with a variable of 33 MiB: with its text it takes 34 MiB, in granules of 2 MiB."""


class Node:
    """A runtime directory with a slice, a coordinator and a sweeper."""

    def __init__(self, folder, gpu, stack):
        self.gpu, self._stack = gpu, stack
        limits = dict.fromkeys(gpu.uuids(), LIMIT)
        self.slice = folder / "slices" / "one"
        slices.make(self.slice, limits, context_memory=CONTEXT, granule=GRANULE)
        from hami_py._native import GrantsPage

        GrantsPage.create(self.slice / "grants")
        self._runtime = folder

    def start(self):
        sweeper = Path(__file__).parents[1] / "support" / "sweeper.py"
        self._python("-m", "hami_py.coordinator", str(self._runtime))
        self._python(str(sweeper), str(self._runtime)).wait_for("ready")

    def _python(self, *arguments):
        env = {**self.gpu.env, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
        return self._stack.enter_context(Started([sys.executable, *arguments], env))

    def measured(self):
        return int(Account.open(self.slice / "account").snapshot().measured_memory[0])

    def used(self):
        return int(Account.open(self.slice / "account").snapshot().memory_used[0])


@pytest.fixture
def node(tmp_path, stub_server):
    with ExitStack() as stack:
        yield Node(tmp_path / "node", stub_server("h200-coarse"), stack)


@pytest.fixture
def console(node, program, preload, tmp_path):
    """A console in the slice. `module m` there loads the module of these tests."""
    (tmp_path / "table.ptx").write_text(MODULE)
    started = Console(program("console"), preload(node.gpu, node.slice), node.slice)
    with started as console:
        console.do("init", "device 0")
        yield console


@pytest.mark.parametrize(
    ("load", "unload"),
    [
        ("module m {}", "unload m"),
        ("library l {}; library_module m l", "library_unload l"),
        ("library l {}; library_kernel k l table; kernel_function f k", "library_unload l"),
    ],
)
def test_the_memory_of_modules_counts_once_it_is_measured(node, console, tmp_path, load, unload):
    node.start()
    console.do("alloc a 100M", *load.format(tmp_path / "table.ptx").split("; "))
    assert node.gpu.booked("modules") == 34 * MIB
    until(lambda: node.measured() == 34 * MIB, "it is not measured")
    assert node.used() == CONTEXT + 134 * MIB
    assert console.value("info", "free") == LIMIT - node.used()
    assert console(f"alloc b {LIMIT - node.used() + 512}") == OUT_OF_MEMORY
    assert console(f"alloc b {whole_granules(LIMIT - node.used())}") == SUCCESS
    console.do("free b", unload)
    until(lambda: node.measured() == 0, "it stays measured")
    assert console(f"alloc b {whole_granules(LIMIT - CONTEXT - 100 * MIB)}") == SUCCESS


def test_what_was_measured_ends_with_its_process(node, console, tmp_path):
    node.start()
    console.do("alloc a 100M", f"module m {tmp_path / 'table.ptx'}")
    until(lambda: node.measured() == 34 * MIB, "it is not measured")
    console.kill()

    def is_gone():
        Account.open(node.slice / "account").reclaim()
        return (node.measured(), node.used()) == (0, 0)

    until(is_gone, "it stays measured")


def test_allocations_are_not_taken_for_the_driver_s_memory(node, console):
    """The sweeper sees a moment at which a program holds more than when its account is read."""
    node.start()
    highest = 0
    for _ in range(300):
        console.do("alloc a 100M", "free a")
        highest = max(highest, node.measured())
    assert highest == 0
    console.do("managed a 200M 1")
    assert node.measured() == 0


def test_memory_that_its_owner_has_freed_is_not_measured_again(
    node, console, program, preload, tmp_path
):
    """NVML counts it for the importer then, and the account for the owner."""
    with Console(program("console"), preload(node.gpu, node.slice), node.slice) as owner:
        owner.do("init", "device 0", "alloc a 64M", "ipc_handle a")
        console.do(f"ipc_open b {owner.outputs.split()[-1]}")
        owner.do("free a")
        node.start()
        console.do(f"module m {tmp_path / 'table.ptx'}")
        until(lambda: node.measured() > 0, "it is not measured")
        assert node.measured() == 34 * MIB
        assert node.used() == 2 * CONTEXT + (64 + 34) * MIB


def test_memory_that_its_dead_owner_has_shared_is_not_measured(node, console, program, preload):
    """NVML counts it for the importer at once, before any process notices the death."""
    with Console(program("console"), preload(node.gpu, node.slice), node.slice) as owner:
        owner.do("init", "device 0", "alloc a 64M", "ipc_handle a")
        console.do(f"ipc_open b {owner.outputs.split()[-1]}")
        node.start()
        owner.kill()
        highest = 0
        # For as long as nobody asks for memory, and so notices the death.
        until_seen = time.monotonic() + 3
        while time.monotonic() < until_seen:
            highest = max(highest, node.measured())
            time.sleep(0.02)
        assert highest == 0


class HamiRun:
    """Consoles that `hami run` starts, on the stub's H200."""

    def __init__(self, env, program):
        self._env, self._program = env, program

    def __call__(self, *options, **env):
        command = (sys.executable, "-m", "hami_py", "run", *options, "--")
        return Console(self._program, {**self._env, **env}, prefix=command)


@pytest.fixture
def hami_run(node, hami, program, tmp_path):
    (tmp_path / "table.ptx").write_text(MODULE)
    return HamiRun({**hami.env(None), **node.gpu.charging_env}, program("console"))


def test_hami_run_measures_the_memory_of_its_programs(hami_run, tmp_path):
    with hami_run("--gpumem", "2GiB") as console:
        console.do("init", "device 0", "alloc a 100M", f"module m {tmp_path / 'table.ptx'}")
        expected = LIMIT - CONTEXT - 134 * MIB
        until(lambda: console.value("info", "free") == expected, "it is not measured")
        assert console(f"alloc b {expected + 512}") == OUT_OF_MEMORY
        console.do("unload m")
        until(lambda: console.value("info", "free") == expected + 34 * MIB, "it stays measured")
        console.finish()


def test_one_hami_run_at_a_time_measures_a_slice(hami_run, tmp_path):
    """When the first one ends, another one goes on."""
    expected = LIMIT - 2 * CONTEXT - 34 * MIB
    with hami_run("--gpumem", "2GiB", "--name", "shared") as first:
        first.do("init", "device 0")
        with hami_run("--join", "shared") as second:
            second.do("init", "device 0", f"module m {tmp_path / 'table.ptx'}")
            until(lambda: second.value("info", "free") == expected, "it is not measured")
            first.finish()
            # The first one's context counts until a time after its end.
            expected += CONTEXT
            until(lambda: second.value("info", "free") == expected, "it is not measured")
            second.do("unload m")
            expected += 34 * MIB
            until(lambda: second.value("info", "free") == expected, "it stays measured")
            second.finish()


def test_without_a_charge_for_contexts_hami_run_measures_nothing(hami_run):
    with hami_run("--gpumem", "2GiB", HAMI_CONTEXT_MEMORY="0") as console:
        console.do("init", "device 0")
        time.sleep(4 * measuring.INTERVAL)
        assert console.value("info", "free") == LIMIT
        console.finish()


def test_what_hami_run_has_measured_ends_with_it(hami_run, hami, tmp_path):
    with hami_run("--gpumem", "2GiB", "--keep") as console:
        console.do("init", "device 0", f"module m {tmp_path / 'table.ptx'}")
        expected = LIMIT - CONTEXT - 34 * MIB
        until(lambda: console.value("info", "free") == expected, "it is not measured")
        console.finish()
    (directory,) = hami.slices()
    assert Account.open(directory / "account").snapshot().measured_memory[0] == 0


def test_a_package_that_is_removed_meanwhile_is_said_in_a_line(node, console, monkeypatch, capfd):
    """The sweeper is imported when a program uses a card; the limit holds all the same."""
    monkeypatch.setitem(sys.modules, "hami_py.gpu.sweep", None)
    measuring.Measuring(config.read({}), node.slice)._run()
    assert "not measured: hami-py was removed or replaced" in capfd.readouterr().err
