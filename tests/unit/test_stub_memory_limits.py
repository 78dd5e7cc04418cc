"""The stub's own memory limits for cgroups, as root and programs in real cgroups see them."""

import os
import sys
import tempfile
import time
import uuid
from pathlib import Path

import pytest

from support import cgroups, nvml
from support.memory_limits import MAX, get_limits, get_question, set_limits, set_question
from support.mig import MigCard
from support.running import Started
from support.stub import StubServer

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or cgroups.mount() is None, reason="only root makes cgroups (version 2)"
)

INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, NO_FUNCTION = 2, 3, 4, 6, 13
OUT_OF_MEMORY = 2
MIB = 1 << 20
SYMBOL = "nvmlDeviceSetMemoryLimits_v1"

PROGRAM = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0
result = cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
print(result, flush=True)
held, pool = {}, ctypes.c_void_p()
for line in sys.stdin:
    verb, mib = line.split()
    size, pointer = ctypes.c_size_t(int(mib) << 20), ctypes.c_uint64()
    if verb == "free":
        result = cuda.cuMemFree_v2(held.pop(mib))
    elif verb == "pool":
        result = cuda.cuMemAllocAsync(ctypes.byref(pointer), size, None)
    elif verb == "managed":
        result = cuda.cuMemAllocManaged(ctypes.byref(pointer), size, 1)
    else:
        result, held[mib] = cuda.cuMemAlloc_v2(ctypes.byref(pointer), size), pointer
    print(result, flush=True)
"""


class Program:
    """A CUDA program with a context, in a cgroup."""

    def __init__(self, env, cgroup):
        self._started = Started(cgroups.inside(cgroup, [sys.executable, "-c", PROGRAM]), env)
        self.pid = self._started.pid

    def __enter__(self):
        self.context = int(self._started.next_line())
        return self

    def __exit__(self, *raised):
        self._started.__exit__(*raised)

    def order(self, verb, mib):
        """The CUDA result of an order of so many MiB."""
        self._started.tell(f"{verb} {mib}")
        return int(self._started.next_line())

    def alloc(self, mib):
        return self.order("alloc", mib)


@pytest.fixture
def pod():
    """The cgroup of a pod, with those of two containers."""
    with cgroups.tree(f"stub-{uuid.uuid4()}") as path:
        for name in ("one", "two"):
            (path / name).mkdir()
        yield path


def used(env, cgroup):
    return get_limits(env, cgroup)[2]


def test_a_driver_without_a_backend_has_no_limits(gpu, pod):
    assert set_limits(gpu.env, pod, MIB) == get_limits(gpu.env, pod) == NOT_SUPPORTED


def test_an_older_driver_has_no_symbol(stub_server, artifacts, pod):
    env = dict(stub_server(memory_limits="dmem").env)
    assert set_limits(env, pod, MIB) == 0
    env["LD_LIBRARY_PATH"] = str(artifacts.stub_dir / "13.0")
    assert set_limits(env, pod, MIB) == get_limits(env, pod) == NO_FUNCTION
    assert nvml.asked(env, "nvmlDeviceGetCount()") == 1


@pytest.mark.parametrize("backend", ["dmem", "misc"])
def test_memory_stops_at_the_hard_limit_of_its_cgroup_and_card(stub_server, pod, backend):
    server = stub_server("t4,t4", memory_limits=backend)
    env, one = server.env, pod / "one"
    limit = 2000 * MIB
    assert set_limits(env, one, limit, soft=MIB) == 0
    with Program(env, one) as program, Program(env, pod / "two") as other:
        context = server.booked("context") // 2
        assert get_limits(env, one) == [MIB, limit, context]
        room = (limit - context) // MIB
        assert program.alloc(room - 64) == 0
        assert program.alloc(65) == OUT_OF_MEMORY == program.order("pool", 65)
        assert program.order("managed", 4000) == 0, "it is on the host"
        assert program.alloc(60) == 0 and program.alloc(5) == OUT_OF_MEMORY
        assert program.order("free", 60) == 0 and program.order("pool", 60) == 0
        assert other.alloc(4000) == 0, "another cgroup"
        assert used(env, one) <= limit
        # A higher limit counts at once, and so does none.
        assert set_limits(env, one, 2 * limit) == 0 and program.alloc(100) == 0
        assert set_limits(env, one, MAX) == 0 and program.alloc(6000) == 0
    ended = get_limits(env, one)
    assert ended == ([0, MAX, 0] if backend == "dmem" else NOT_SUPPORTED)


def test_without_room_for_it_no_context_is_made(stub_server, pod):
    env = stub_server(memory_limits="dmem").env
    assert set_limits(env, pod / "one", 100 * MIB) == 0
    with Program(env, pod / "one") as program:
        assert program.context == OUT_OF_MEMORY


def test_dmem_counts_what_was_there_and_all_below(stub_server, pod):
    server = stub_server(memory_limits="dmem")
    env, one, two = server.env, pod / "one", pod / "two"
    with Program(env, one) as first, Program(env, two) as second:
        assert first.alloc(1000) == second.alloc(2000) == 0
        each = server.booked("context") // 2
        assert used(env, one) == each + 1000 * MIB
        total = used(env, pod)
        assert total == 2 * each + 3000 * MIB
        # A limit below the use is accepted, and new memory fails until the use has fallen.
        assert set_limits(env, pod, total - MIB) == 0
        assert first.alloc(1) == OUT_OF_MEMORY
        assert second.order("free", 2000) == 0
        assert first.alloc(1998) == 0 and second.alloc(2) == OUT_OF_MEMORY
        # The limit of the container counts as well as the pod's.
        assert set_limits(env, pod, MAX) == 0 and set_limits(env, two, each + MIB) == 0
        assert second.alloc(2) == OUT_OF_MEMORY and second.alloc(1) == 0 == first.alloc(50)
        # Memory stays where it was charged, and new memory is charged where the process is now.
        (two / "cgroup.procs").write_text(str(first.pid))
        assert first.alloc(3) == OUT_OF_MEMORY
        (one / "cgroup.procs").write_text(str(first.pid))
        assert first.alloc(3) == 0


def test_a_removed_cgroup_of_dmem_leaves_no_limit(stub_server, pod):
    env = stub_server(memory_limits="dmem").env
    assert set_limits(env, pod / "one", MIB) == 0
    (pod / "one").rmdir()
    assert get_limits(env, pod / "one") == NOT_FOUND
    (pod / "one").mkdir()
    assert get_limits(env, pod / "one") == [0, MAX, 0]


def test_misc_counts_for_the_nearest_limit_and_only_new_memory(stub_server, pod):
    server = stub_server(memory_limits="misc")
    env, one = server.env, pod / "one"
    assert set_limits(env, pod, 300 * MIB) == 0
    with Program(env, pod / "two") as below:
        assert below.context == OUT_OF_MEMORY, "the nearest limit is the pod's"
    assert set_limits(env, pod, MAX) == 0
    with Program(env, one) as program:
        assert program.alloc(1000) == 0
        assert set_limits(env, one, 100 * MIB) == 0, "memory from before never counts"
        assert get_limits(env, one) == [0, 100 * MIB, 0]
        assert program.alloc(90) == 0 and program.alloc(20) == OUT_OF_MEMORY
        assert program.order("free", 1000) == 0
        assert used(env, one) == 90 * MIB and program.alloc(20) == OUT_OF_MEMORY
        # Limits do not nest.
        assert set_limits(env, pod, MIB) == 0 and program.alloc(5) == 0
        assert used(env, pod) == 0 and used(env, one) == 95 * MIB
        # A limit below the use is refused, and the old one stays.
        assert set_limits(env, one, 94 * MIB) == INVALID_ARGUMENT
        assert get_limits(env, one) == [0, 100 * MIB, 95 * MIB]
        # The process began in one, and its memory counts there wherever it goes.
        (pod / "two" / "cgroup.procs").write_text(str(program.pid))
        assert program.alloc(20) == OUT_OF_MEMORY
        # Without its limit, the next one above counts.
        assert set_limits(env, one, MAX) == 0 and program.alloc(2) == OUT_OF_MEMORY
        # A new limit begins anew.
        assert set_limits(env, one, 100 * MIB) == 0
        assert get_limits(env, one) == [0, 100 * MIB, 0]


def test_wrong_calls_are_refused(stub_server, pod, tmp_path):
    server = stub_server("a100", memory_limits="dmem")
    env = server.env
    assert set_limits(env, pod / "none", MIB) == get_limits(env, pod / "none") == NOT_FOUND
    assert set_limits(env, tmp_path, MIB) == NOT_FOUND, "no cgroup of version 2"
    assert set_limits(env, cgroups.mount(), MIB) == NOT_FOUND, "the root"
    assert set_limits(env, pod, MIB, soft=2 * MIB) == INVALID_ARGUMENT
    assert nvml.asked(env, f"{SYMBOL}(card, c_nvmlSetMemoryLimits_v1_t())") == INVALID_ARGUMENT
    device = MigCard(server).mode().create(19)
    handle = f"nvmlDeviceGetHandleByUUID({device.uuid!r})"
    assert nvml.asked(env, set_question(pod, MIB, card=handle)) == NOT_SUPPORTED
    assert get_limits(env, pod) == [0, MAX, 0]


def test_only_root_sets_and_anyone_reads(artifacts, pod):
    with (
        tempfile.TemporaryDirectory() as folder,
        StubServer(artifacts, Path(folder) / "stub", "a100", memory_limits="dmem") as gpu,
    ):
        # All users reach the server, as they reach a driver.
        Path(folder).chmod(0o755)
        gpu.client_socket.chmod(0o777)
        as_other = "(nvmlShutdown(), __import__('os').setuid(65534), nvmlInit())"
        assert set_limits(gpu.env, pod, MIB) == 0
        asked = f"{as_other} and {set_question(pod, 2 * MIB)}"
        assert nvml.asked(gpu.env, asked) == NO_PERMISSION
        asked = f"{as_other} and {get_question(pod)}"
        assert nvml.asked(gpu.env, asked) == [0, MIB, 0]


HANG = f"""
import sys, time
from pynvml import *
nvmlInit()
card = nvmlDeviceGetHandleByIndex(0)
{SYMBOL}(card, c_nvmlSetMemoryLimits_v1_t(sys.argv[1].encode(), 0, {MIB}))
print(time.monotonic(), flush=True)
sys.stdin.read()
"""


def test_a_set_that_hangs_has_had_its_effect(stub_server, pod):
    server = stub_server(memory_limits="dmem")
    server.control({"command": "slow", "symbol": SYMBOL, "us": 600_000_000})
    with Started([sys.executable, "-c", HANG, str(pod)], server.env) as hanging:
        server.wait_until(lambda it: it.calls("nvml")[SYMBOL] == 1)
        assert get_limits(server.env, pod) == [0, MIB, 0]
        ended = time.monotonic()
        server.control({"command": "slow", "symbol": SYMBOL, "us": 0})
        assert float(hanging.next_line()) > ended
