"""When a container's process has died: what the sweeper and the coordinator say of its memory.

The grants page is read as bytes, by its documented layout. The stub's ledger says what the driver
holds. The processes run in a PID namespace of their own, so the numbers in the account are not
those that NVML lists.
"""

import json
import os
import struct
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.artifacts import ROOT
from support.launcher import make_slice, until
from support.requirements import skip_or_fail
from support.running import Started

CONTAINER = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]

#: Milliseconds until the stub has freed the memory of a dead process: longer than the grace period
#: of 750 ms, so that a process that falls back to it is noticed.
DELAY = 1200

MIB = 1 << 20


class Node:
    """A runtime directory with a slice, a coordinator and, if wanted, a sweeper."""

    def __init__(self, folder, gpu, programs):
        self.runtime, self.gpu, self._programs = folder, gpu, programs
        self.slice = make_slice(folder / "slices" / "one", gpu, None)
        self._start("-m", "hami_py.coordinator", str(folder))

    def sweep(self):
        script = Path(__file__).parents[1] / "support" / "sweeper.py"
        return self._start(str(script), str(self.runtime)).wait_for("ready")

    def _start(self, *arguments):
        env = {**self.gpu.env, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
        return self._programs.enter_context(Started([sys.executable, *arguments], env))

    def run(self, program, env):
        """The program holds 100 MiB, in a container."""
        command = [*CONTAINER, program, "100"]
        return self._programs.enter_context(Started(command, env)).wait_for("holding")

    def word(self, at):
        page = (self.slice / "grants").read_bytes()
        return int(struct.unpack_from("<Q", page, at)[0])

    def swept_at(self):
        return self.word(48)

    def joined_at(self):
        """When the process in the first slot of the account joined."""
        record = (self.slice / "account").read_bytes()[36864:][:256]
        assert struct.unpack_from("<I", record)[0] == 1, "the first slot is free"
        return int(struct.unpack_from("<Q", record, 40)[0])

    def is_freed(self):
        return self.word(1088) == self.joined_at()

    def rows(self):
        found: list[dict[str, object]] = json.loads((self.runtime / "sweep").read_bytes())[
            "processes"
        ]
        return found


@pytest.fixture
def node(tmp_path, stub_server):
    if os.geteuid():
        skip_or_fail("only root may create a PID namespace")
    gpu = stub_server("a100", free_delay_ms=DELAY)
    with ExitStack() as programs:
        yield Node(tmp_path / "runtime", gpu, programs)


@pytest.fixture
def holder(node, program, preload):
    return node.run(program("depart"), preload(node.gpu, node.slice))


def freed_when_the_driver_has(node):
    """The page says it after the ledger, and soon."""

    def freed():
        # The page first: the driver may free the memory between the two.
        said, held = node.is_freed(), node.gpu.held()
        assert not (said and held), f"the driver still holds {held} bytes"
        return said

    assert node.gpu.held() == 100 * MIB
    until(freed, "the page never says that the memory is free")


def test_memory_is_free_when_the_driver_has_freed_it(node, holder):
    """It lasts as long as the stub's driver needs, longer than the grace period."""
    node.sweep()
    until(lambda: node.swept_at() != 0, "no sweep arrives")
    assert not node.is_freed()
    [row] = node.rows()
    assert row["running"] and row["pid"] != row["pid_in_namespace"] == 2
    holder.kill()
    freed_when_the_driver_has(node)


def test_a_zombie_has_departed(node, holder):
    """Its driver memory is freed as any other's, though its number is in use."""
    node.sweep()
    until(lambda: node.swept_at() != 0, "no sweep arrives")
    holder.tell("zombie")
    holder.wait_for("left")
    freed_when_the_driver_has(node)


def test_a_child_that_keeps_the_drivers_files_open_keeps_the_memory(node, holder):
    """As with the real driver. The wait is longer than all periods together."""
    node.sweep()
    until(lambda: node.swept_at() != 0, "no sweep arrives")
    holder.tell("fork")
    holder.wait_for("left")
    time.sleep(DELAY / 1000 + 1)
    assert (node.is_freed(), node.gpu.held()) == (False, 100 * MIB)
    assert [row["running"] for row in node.rows()] == [False]
    holder.kill()
    freed_when_the_driver_has(node)


@pytest.mark.tier("torture")  # It measures the grace period.
@pytest.mark.parametrize("how", ["exec", "again"])
def test_memory_of_a_program_that_another_one_replaced(node, holder, how):
    """The process is listed and runs: first because of the old program, and then of the new one."""
    node.sweep()
    until(lambda: node.swept_at() != 0, "no sweep arrives")
    began = time.monotonic()
    entry = node.joined_at()
    holder.tell(how)
    until(lambda: node.word(1088) == entry, "the page never says that the memory is free")
    assert time.monotonic() - began >= 0.75, "the driver may still hold the old program's memory"


def test_a_consumer_that_outlives_its_producer_does_not_stop_the_coordinator(node, start):
    """The account then has memory that no exporter owns."""
    node.sweep()
    producer = start(node.gpu, node.slice)
    producer.do("alloc a 32M", "ipc_handle a")
    consumer = start(node.gpu, node.slice)
    consumer.do(f"ipc_open b {producer.outputs.split()[-1]}")
    producer.kill()

    def is_reaped():
        consumer.do("info")
        return (node.slice / "account").read_bytes()[36864] == 0

    until(is_reaped, "the producer's slot is not free")
    for _ in range(3):
        seen = node.swept_at()
        until(lambda seen=seen: node.swept_at() > seen, "the coordinator publishes nothing")
    assert node.gpu.held() == 32 * MIB


def test_without_a_sweeper_nobody_knows(node, holder):
    holder.kill()
    until(lambda: node.gpu.held() == 0, "the driver does not free the memory")
    time.sleep(0.3)
    assert (node.swept_at(), node.word(1088)) == (0, 0)
    # The sweeper comes late: the process is not listed any more.
    node.sweep()
    until(node.is_freed, "the page never says that the memory is free")


def test_a_sweep_stops_with_its_sweeper(node, holder):
    sweeper = node.sweep()
    until(lambda: node.swept_at() != 0, "no sweep arrives")
    done = sweeper.finish()
    assert (done.code, done.err) == (0, "")
    holder.kill()
    until(lambda: node.gpu.held() == 0, "the driver does not free the memory")
    silent = node.swept_at()
    time.sleep(0.3)
    assert node.swept_at() == silent and not node.is_freed()
