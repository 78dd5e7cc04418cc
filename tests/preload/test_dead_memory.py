"""The memory of a dead process comes back when the driver has freed it: not before, and in time.

The programs run in PID namespaces, so the library cannot tell from NVML when that is. A sweeper on
the host can, as the node agent does; the coordinator writes what it reports into the grants page.
The ledger shows whether the limit was ever exceeded.
"""

import contextlib
import os
import random
import re
import signal
import struct
import sys
import time
from pathlib import Path

import pytest

from hami_py._native import Account, GrantsPage
from support import slices
from support.artifacts import ROOT
from support.console import OUT_OF_MEMORY, Console
from support.launcher import until
from support.namespaces import IN_A_NAMESPACE, Namespace
from support.running import Started, run
from support.slices import GIB, MIB
from support.tiers import amount
from support.traces import value

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes PID namespaces")

LIMIT = 4 * GIB

SWEEPER = Path(__file__).parents[1] / "support" / "sweeper.py"


@pytest.fixture
def container(tmp_path, preload):
    """`container(gpu, name)`: the environment of the programs of a new slice of this node.

    With the first one, the node's coordinator and sweeper start, unless `swept` is False.
    """
    with contextlib.ExitStack() as node:
        runtime = tmp_path / "hami"

        def make(gpu, name="one", *, swept=True):
            if swept and not runtime.exists():
                runtime.mkdir()
                python = {"PYTHONPATH": os.pathsep.join(sys.path)}
                coordinator = [sys.executable, "-m", "hami_py.coordinator", runtime]
                node.enter_context(Started(coordinator, python))
                sweeper = [sys.executable, SWEEPER, runtime]
                node.enter_context(Started(sweeper, {**python, **gpu.env})).wait_for("ready")
            directory = runtime / "slices" / name
            slices.make(directory, dict.fromkeys(gpu.uuids(), LIMIT))
            GrantsPage.create(directory / "grants")
            return preload(gpu, directory)

        yield make


def results(done):
    assert done.code == 0, done
    return done.lines


@pytest.mark.parametrize("delay", [0, 50, 500])
@pytest.mark.parametrize("swept", [True, False], ids=["swept", "unswept"])
def test_programs_in_sequence_all_get_most_of_the_card(
    stub_server, program, container, delay, swept
):
    """It starts a container three times: the third is what went wrong with a grace period that
    began when a death was noticed."""
    gpu = stub_server(free_delay_ms=delay)
    env = container(gpu, swept=swept)
    name = program("percent_of_total")
    script = f"{name} 80; {name} 80; {name} 80"
    assert results(run([*IN_A_NAMESPACE, "sh", "-c", script], env)) == ["granted"] * 3
    assert gpu.peak() <= LIMIT


@pytest.mark.parametrize("where", ["slice", "namespace", "variables", "swept", "unswept"])
def test_a_restarted_server_read_the_memory_of_the_killed_one_as_used(
    stub_server, program, container, tmp_path, where
):
    """A server sizes its cache by the free memory that it reads first, and then waits for none."""
    gpu = stub_server(without_driver_memory(tmp_path), free_delay_ms=500)
    env = container(gpu, swept=where == "swept")
    if where == "variables":
        env["LD_PRELOAD"] = str(Path(env["LD_PRELOAD"]).resolve())
        cache = str(tmp_path / "cache")
        env |= {"CUDA_DEVICE_MEMORY_LIMIT": "4g", "CUDA_DEVICE_MEMORY_SHARED_CACHE": cache}
    server = program("server")
    prefix = [] if where == "slice" else [*IN_A_NAMESPACE]
    rounds = amount("restarts of a server")
    script = f"for round in $(seq {rounds}); do {server} 3072; done 2> /dev/null; true"
    assert results(run([*prefix, "sh", "-c", script], env)) == [str(LIMIT // MIB)] * rounds
    assert gpu.peak() <= LIMIT


@pytest.mark.parametrize("where", ["host", "namespace", "swept"])
def test_a_program_that_only_asks_nvml_never_saw_a_dead_worker_s_memory_return(
    gpu, program, container, where
):
    env = container(gpu, swept=where == "swept")
    prefix = [] if where == "host" else [*IN_A_NAMESPACE]
    script = f"{program('server')} 3072; {program('nvml_memory')}"
    killed, nvml, *_ = results(run([*prefix, "sh", "-c", script], env))
    assert (killed, value(nvml, "free"), value(nvml, "used")) == (str(LIMIT // MIB), LIMIT, 0)


def test_a_kept_slice_showed_the_memory_of_programs_that_had_ended(gpu, program, container):
    """Nobody has noticed the death of its last program."""
    env = container(gpu, swept=False)
    run([*IN_A_NAMESPACE, program("server"), "3072"], env)
    account = Account.open(Path(env["HAMI_SLICE"]) / "account")
    seen = account.snapshot()
    assert [process.alive for process in seen.processes] == [False]
    assert seen.memory_used[0] == 0


def test_memory_that_an_importer_keeps_stays_used_when_its_owner_has_died(gpu, program, container):
    """Also while its owner's death is new, and in readings from outside."""
    env = container(gpu, swept=False)
    account = Account.open(Path(env["HAMI_SLICE"]) / "account")
    console = program("console")
    with Console(console, env) as owner, Console(console, env) as importer:
        owner.do("init", "device 0", f"alloc a {GIB}", f"alloc b {GIB}")
        importer.do("init", "device 0")
        owner.do("ipc_handle a")
        importer.do(f"ipc_open c {owner.outputs.split()[-1]}")
        owner.kill()
        free = ("info", "free")
        until(lambda: importer.value(*free) != LIMIT - 2 * GIB, "the death is never noticed")
        assert (importer.value(*free), account.snapshot().memory_used[0]) == (LIMIT - GIB, GIB)


@pytest.mark.parametrize("how", ["fork", "exec"])
@pytest.mark.parametrize("delay", [0, 50, 500])
def test_programs_that_fork_or_execute_all_get_most_of_the_card(
    stub_server, program, container, delay, how
):
    gpu = stub_server(free_delay_ms=delay)
    env = container(gpu)
    command = [*IN_A_NAMESPACE, program("percent_of_total"), "80", "3", how]
    assert results(run(command, env)) == ["granted"] * 3
    assert gpu.peak() <= LIMIT


@pytest.mark.tier("torture")  # It fails where the machine pauses it for half a second.
def test_the_grace_period_begins_again_when_sweeps_stop(gpu, program, container):
    """The last sweep saw the memory in use, and a coordinator that is restarted is silent for half
    a second and more."""
    env = container(gpu, swept=False)
    page = Path(env["HAMI_SLICE"]) / "grants"

    def sweep():
        with page.open("r+b") as file:
            file.seek(48)
            file.write(struct.pack("<Q", time.monotonic_ns()))

    console = program("console")
    with Console(console, env) as dead, Console(console, env) as alive:
        dead.do("init", "device 0", f"alloc a {3 * GIB}")
        alive.do("init", "device 0")
        os.kill(dead.pid, signal.SIGKILL)
        # The death is noticed more than a grace period before the sweeps stop.
        until = time.monotonic() + 1
        while time.monotonic() < until:
            sweep()
            alive.value("info", "free")
            time.sleep(0.02)
        stopped = time.monotonic()
        sweep()
        while alive(f"alloc a {LIMIT}") == OUT_OF_MEMORY:
            assert time.monotonic() < stopped + 30
        assert time.monotonic() - stopped >= 1.25


def test_containers_do_not_wait_for_one_another(stub_server, program, container):
    gpu = stub_server(free_delay_ms=50)
    environments = [container(gpu, name) for name in ("one", "two", "three")]
    name = program("percent_of_total")
    script = f"{name} 80; {name} 80; {name} 80"
    with contextlib.ExitStack() as stack:
        spaces = [stack.enter_context(Namespace(env)) for env in environments]
        started = [(space, space.start(["sh", "-c", script])) for space in spaces]
        for space, pid in started:
            assert space.wait(pid) == (0, "granted\n" * 3)
    assert gpu.peak() <= 3 * LIMIT


def test_a_child_that_keeps_the_driver_s_files_keeps_the_memory(gpu, program, container):
    """Its parent has died, but the driver has freed nothing. It outlasts the grace period, and the
    two seconds for which a request waits."""
    env = container(gpu)
    with Namespace(env) as space:
        parent = space.start([program("leave_a_child"), "3072"])
        assert space.wait(parent) == (0, "granted\n")
        assert gpu.held() == 3 * GIB
        refused = space.start([program("percent_of_total"), "80"])
        assert space.wait(refused) == (0, "refused\n")
        beside = space.start([program("percent_of_total"), "10"])
        assert space.wait(beside) == (0, "granted\n")
    gpu.wait_until(lambda gpu: gpu.held() == 0)
    with Namespace(env) as space:
        afterwards = space.start([program("percent_of_total"), "80"])
        assert space.wait(afterwards) == (0, "granted\n")
    assert gpu.peak() <= LIMIT


PROCESSES, NAMESPACES, ACTIONS = 8, 4, 500


def without_driver_memory(folder):
    """The profile of a card on which contexts take no memory."""
    profile = (ROOT / "tests/stub/profiles/a100.toml").read_text()
    changed = folder / "a100-no-contexts.toml"
    changed.write_text(re.sub(r"^context_bytes = \d+", "context_bytes = 0", profile, flags=re.M))
    return changed


@pytest.mark.tier("ci")
def test_random_kills_and_stops_never_break_the_limit(stub_server, program, container, tmp_path):
    """It takes half a minute: 500 actions, with the driver's delay after each kill.

    Each process has a part of the limit of its own, so no request may be refused, whatever happens
    to the others. What contexts take is measured and charged, so they take nothing here.
    """
    gpu = stub_server(without_driver_memory(tmp_path), free_delay_ms=50)
    env = container(gpu)
    part = LIMIT // MIB // PROCESSES
    chance = random.Random(1)  # noqa: S311 - no secret
    failures = []
    with contextlib.ExitStack() as stack:
        spaces = [stack.enter_context(Namespace(env)) for _ in range(NAMESPACES)]

        def start(place):
            command = [program("partition"), str(part), "1000000000", str(chance.random())]
            return spaces[place % NAMESPACES].start(command)

        pids = [start(place) for place in range(PROCESSES)]
        stopped = set()

        def act(place):
            space = spaces[place % NAMESPACES]
            if place in stopped:
                stopped.remove(place)
                space.signal(pids[place], signal.SIGCONT)
            elif chance.random() < 0.5:
                stopped.add(place)
                space.signal(pids[place], signal.SIGSTOP)
            else:
                space.signal(pids[place], signal.SIGKILL)
                code, output = space.wait(pids[place])
                if (code, output) != (-signal.SIGKILL, ""):
                    failures.append(output)
                pids[place] = start(place)

        for _ in range(ACTIONS):
            act(chance.randrange(PROCESSES))
            time.sleep(chance.random() / 20)
        for place in stopped:
            spaces[place % NAMESPACES].signal(pids[place], signal.SIGCONT)
        time.sleep(2.5)
        for place, pid in enumerate(pids):
            spaces[place % NAMESPACES].signal(pid, signal.SIGKILL)
            failures += [spaces[place % NAMESPACES].wait(pid)[1]]
    assert not any(failures), failures
    assert 0 < gpu.peak() <= LIMIT
    assert results(run([program("percent_of_total"), "100"], env)) == ["granted"]
    assert gpu.peak() <= LIMIT
