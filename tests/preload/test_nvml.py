"""NVML in a slice lists only the slice's processes, and lists each from the right moment on.

NVML without the library, and the stub's ledger, show the processes outside.
"""

import contextlib
import fcntl
import struct

import pytest

from hami_py._native import Account
from support.console import Console
from support.nvml import NOT_FOUND, UNKNOWN, asked
from support.running import Started, run
from support.slices import GIB, MIB
from support.traces import value


def listed(env):
    """[pid, bytes] of the compute processes on the first card."""
    return asked(env, "processes(nvmlDeviceGetComputeRunningProcesses(card))")


@pytest.fixture
def running(program):
    """`running(env, "hold", 1024)` starts a program that waits, and gives it."""
    with contextlib.ExitStack() as stack:

        def start(env, name, *arguments):
            started = Started([program(name), *map(str, arguments)], env)
            stack.enter_context(started).wait_for("holding")
            return started

        yield start


def requested(gpu, *processes):
    """[pid, bytes] as the stub's ledger has them."""
    rows = {row["pid"]: row for row in gpu.ledger()["processes"] if row["library"] == "cuda"}
    return sorted([p.pid, rows[p.pid]["cards"][0]["requested"]["now"]] for p in processes)


@pytest.fixture
def two_tenants(gpu, slice_dir, preload, running):
    """The environments of two slices on one card, and the one process that each has."""
    envs = [preload(gpu, slice_dir({gpu.uuids()[0]: 8 * GIB})) for _ in range(2)]
    return [(env, running(env, "hold", size)) for env, size in zip(envs, (1024, 512), strict=True)]


# Processes.


def test_a_slice_lists_its_own_processes_and_the_outside_lists_all(gpu, two_tenants, running):
    outside = running(gpu.env, "hold", 256)
    for env, process in two_tenants:
        assert listed(env) == requested(gpu, process)
    everybody = [process.pid for _, process in two_tenants] + [outside.pid]
    assert [pid for pid, _ in listed(gpu.env)] == sorted(everybody)


def test_the_list_adds_up_to_the_used_memory(gpu, slice_env, running):
    env = slice_env(gpu, 8 * GIB)
    processes = [running(env, "hold", size) for size in (1024, 512, 3)]
    assert listed(env) == requested(gpu, *processes)
    assert asked(env, "nvmlDeviceGetMemoryInfo(card).used") == (1024 + 512 + 3) * MIB


def test_a_process_without_memory_is_listed_with_0_bytes(gpu, slice_env, program):
    env = slice_env(gpu, GIB)
    with Console(program("console"), env) as process:
        process.do("init", "device 0")
        assert listed(env) == [[process.pid, 0]]


def test_an_ended_process_is_not_listed(gpu, slice_env, running):
    env = slice_env(gpu, GIB)
    first, second = running(env, "hold", 64), running(env, "hold", 128)
    first.kill()
    gpu.wait_until(lambda gpu: gpu.held() == 128 * MIB)
    assert listed(env) == [[second.pid, 128 * MIB]]


def test_a_process_that_the_driver_still_has_to_clean_up_is_not_listed(
    stub_server, slice_env, running
):
    gpu = stub_server(free_delay_ms=60_000)
    env = slice_env(gpu, GIB)
    process = running(env, "hold", 64)
    process.kill()
    assert [pid for pid, _ in listed(gpu.env)] == [process.pid]
    assert listed(env) == []


def test_the_inner_slice_sees_its_own_and_the_outer_sees_both(gpu, slice_dir, preload, running):
    limits = {gpu.uuids()[0]: 8 * GIB}
    outer, inner = slice_dir(limits), slice_dir(limits)
    inside, around = preload(gpu, f"{outer}:{inner}"), preload(gpu, outer)
    ours, theirs = running(inside, "hold", 512), running(around, "hold", 256)
    assert listed(inside) == requested(gpu, ours)
    assert listed(around) == requested(gpu, ours, theirs)


def test_a_limit_by_hami_s_variable_is_a_slice_as_well(gpu, by_variables, running):
    env = by_variables(gpu, CUDA_DEVICE_MEMORY_LIMIT="1g")
    ours = running(env, "hold", 64)
    running(gpu.env, "hold", 32)
    assert listed(env) == requested(gpu, ours)


def test_lists_of_all_versions_are_filtered_and_stay_within_their_buffer(gpu, program, two_tenants):
    """The program checks the bytes behind what it offered; the unversioned row is the smaller."""
    (env, process), (_, neighbour) = two_tenants
    lines = run([program("nvml_processes")], env).lines
    for name in ("compute", "compute_v2", "compute_v3"):
        assert [line for line in lines if line.startswith(f"{name} ")] == [
            f"{name} size -> 7 count=1",
            f"{name} short -> 7 count=1 touched=0",
            f"{name} exact -> 0 count=1 guard=0",
            f"{name} row pid={process.pid} memory={GIB}",
            f"{name} nowhere -> 2",
        ]
    for name in ("graphics", "graphics_v3"):
        assert f"{name} exact -> 0 count=0 guard=0" in lines
    bare = run([program("nvml_processes")], gpu.env).lines
    rows = [value(line, "pid") for line in bare if line.startswith("compute row")]
    assert sorted(rows) == sorted([process.pid, neighbour.pid])


def test_utilization_is_that_of_the_slice_s_processes(gpu, slice_env, two_tenants):
    question = "pids(nvmlDeviceGetProcessUtilization(card, 0))"
    for env, process in two_tenants:
        assert asked(env, question) == [process.pid]
    assert len(asked(gpu.env, question)) == 2
    assert asked(slice_env(gpu, GIB), question) == NOT_FOUND


#: Accounting of a card is off until it is switched on.
ACCOUNTING = "nvmlDeviceSetAccountingMode(card, 1) is None"


@pytest.mark.parametrize(
    "question",
    [
        "pids(nvmlDeviceGetProcessesUtilizationInfo(card, 0))",
        "processes(nvmlDeviceGetRunningProcessDetailList(card, nvmlProcessDetailList_v1, 0))",
        f"{ACCOUNTING} and sorted(nvmlDeviceGetAccountingPids(card))",
    ],
)
def test_newer_lists_are_filtered_too(gpu, two_tenants, question):
    assert len(asked(gpu.env, question)) == 2
    for env, process in two_tenants:
        (row,) = asked(env, question)
        assert row in (process.pid, *requested(gpu, process))


@pytest.mark.parametrize("version", ["", "_v2"])
def test_the_accounting_of_a_process_outside_is_not_found(gpu, two_tenants, version):
    (env, ours), (_, theirs) = two_tenants
    question = f"{ACCOUNTING} and nvmlDeviceGetAccountingStats{version}(card, {{}}).isRunning"
    assert asked(gpu.env, question.format(theirs.pid)) == 1
    assert asked(env, question.format(ours.pid)) == 1
    assert asked(env, question.format(theirs.pid)) == NOT_FOUND


@pytest.mark.parametrize(
    "question",
    [
        "nvmlDeviceGetRunningProcessDetailList(card, 77, 0)",
        "nvmlDeviceGetGpuFabricInfoV(card, pynvml.byref(c_nvmlGpuFabricInfoV_t()))",
        "nvmlDeviceGetBAR1MemoryInfo(card).bar1Total",
    ],
)
def test_queries_that_do_not_concern_the_slice_return_the_driver_s_result(gpu, slice_env, question):
    assert asked(slice_env(gpu, GIB), question) == asked(gpu.env, question)


@pytest.mark.parametrize("monitor", ["nvitop", "gpustat"])
def test_a_monitor_shows_the_slice_s_processes(gpu, two_tenants, monitor):
    pids = {
        "nvitop": "sorted(__import__('nvitop').Device(0).processes())",
        "gpustat": "sorted(p['pid'] for p in __import__('gpustat').new_query().gpus[0].processes)",
    }[monitor]
    for env, process in two_tenants:
        assert asked(env, pids) == [process.pid]
    assert len(asked(gpu.env, pids)) == 2


def test_without_any_limit_processes_are_listed_as_without_us(artifacts, gpu, program, running):
    running(gpu.env, "hold", 64)
    env = {**gpu.env, "LD_PRELOAD": str(artifacts.library)}
    assert run([program("nvml_processes")], env) == run([program("nvml_processes")], gpu.env)


def test_where_the_slice_is_refused_no_device_data_is_returned(gpu, program, preload, slice_dir):
    """No device is had from NVML, and so it is asked about none."""
    directory = slice_dir({gpu.uuids()[0]: GIB})
    (directory / "limits").write_bytes(b"")
    calls = [
        "nvmlDeviceGetMemoryInfo bb",
        "nvmlDeviceGetMemoryInfo_v2 bb",
        "nvmlDeviceGetComputeRunningProcesses_v3 bbb",
        "nvmlDeviceGetProcessUtilization bbb0",
        "nvmlDeviceGetRunningProcessDetailList bb",
        "nvmlDeviceGetAccountingStats b1b",
    ]
    env = {
        **preload(gpu, directory),
        "LIBRARY": "libnvidia-ml.so.1",
        "STATE": "initialised",
    }
    done = run([program("call_each")], env, input="\n".join(calls) + "\n")
    assert len(done.lines) == len(calls)
    assert all(line.endswith(f" -> {UNKNOWN}") for line in done.lines), done.lines


# Joining.


def test_a_process_joins_every_account_at_its_cu_init(gpu, slice_dir, preload, program):
    limits = {gpu.uuids()[0]: GIB}
    slices = [slice_dir(limits), slice_dir(limits)]
    with Console(program("console"), preload(gpu, ":".join(map(str, slices)))) as process:
        process.do("init")
        for directory in slices:
            (member,) = Account.open(directory / "account").snapshot().processes
            assert (member.pid, member.alive, member.memory[0]) == (process.pid, True, 0)


def test_a_child_of_fork_is_a_member_of_its_own(gpu, slice_dir, preload, program):
    directory = slice_dir({gpu.uuids()[0]: GIB})
    run([program("fork_before_init"), "256"], preload(gpu, directory))
    pids = {process.pid for process in Account.open(directory / "account").snapshot().processes}
    assert len(pids) == 2


@contextlib.contextmanager
def full(account):
    """The account with every slot taken by a process that lives: this one."""
    records, size, slots = 36864, 256, 256
    with account.open("r+b") as file:
        for slot in range(slots):
            file.seek(records + slot * size)
            file.write(struct.pack("<I", 1))
        file.seek(64)
        file.write(struct.pack("<I", slots))
        file.flush()
        lock = struct.pack("@hhqqi", fcntl.F_WRLCK, 0, 0, slots, 0)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK if hasattr(fcntl, "F_OFD_SETLK") else 37, lock)
        yield


def test_a_full_account_is_reported_by_the_first_allocation_and_not_by_cu_init(
    gpu, slice_dir, preload, program
):
    directory = slice_dir({gpu.uuids()[0]: GIB})
    with full(directory / "account"):
        idle = run([program("initialise")], preload(gpu, directory))
        assert (idle.lines[0], idle.err) == ("cuInit(0) -> 0", "")
        asking = run([program("allocate"), "1"], preload(gpu, directory))
    assert asking.out.endswith(" -> 2 pointer=untouched\n")
    (line,) = asking.err.splitlines()
    assert "all 256 process slots are taken" in line
