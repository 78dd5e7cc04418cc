"""Processes, forks and kills release memory when they end, and nothing else does."""

import pytest

from support.running import Started, run
from support.slices import GIB, MIB

#: Of a limit of 1 GiB: fits once, and not twice.
MOST = 900


def granted(done):
    """Which of the allocations of a trace were granted."""
    return [line.split("granted=")[1] == "1" for line in done.lines if "granted=" in line]


# Processes.


def tries(requester):
    """How often `ask_until` tried until it was granted; its tries are at least 5 ms apart."""
    requester.tell("go")
    line = requester.next_line()
    if line == "refused":
        line = requester.next_line()
    assert line.startswith("granted at try ")
    return int(line.split()[-1])


def assert_granted(program, env, size):
    """So many MiB are granted in time: the driver may need some to free those of the dead."""
    with Started([program("allocate_until"), str(size)], env) as requester:
        tries(requester.wait_for("ready"))


def test_a_process_that_ends_releases_its_memory(gpu, program, slice_env):
    env = slice_env(gpu, GIB)
    for _ in range(3):
        assert_granted(program, env, MOST)
    assert gpu.peak() == MOST * MIB


@pytest.fixture
def tries_after_a_kill(stub_server, program, slice_env):
    """`tries_after_a_kill(delay)`: how often a process must try to get a killed one's memory.

    The ledger's peak shows that it never gets it before the driver has freed it, which takes so
    many milliseconds.
    """

    def count(delay):
        gpu = stub_server(free_delay_ms=delay)
        env = slice_env(gpu, GIB)
        with Started([program("hold"), str(MOST)], env) as holder:
            holder.wait_for("holding")
            with Started([program("allocate_until"), str(MOST)], env) as requester:
                requester.wait_for("ready")
                holder.kill()
                count = tries(requester)
        assert gpu.peak() == MOST * MIB
        return count

    return count


@pytest.mark.parametrize("delay", [0, 50, 500])
def test_a_killed_process_s_memory_is_usable_once_the_driver_has_freed_it(
    tries_after_a_kill, delay
):
    tries_after_a_kill(delay)


@pytest.mark.tier("torture")
@pytest.mark.parametrize("delay", [0, 50, 500])
def test_a_killed_process_s_memory_is_usable_within_a_second_after(tries_after_a_kill, delay):
    assert tries_after_a_kill(delay) <= (delay + 1000) / 5


def test_many_killed_processes_leave_nothing_behind(gpu, program, slice_env):
    """Slots are finite, and so is patience: forty kills must cost neither."""
    env = slice_env(gpu, GIB)
    for _ in range(40):
        with Started([program("hold"), "25"], env) as holder:
            holder.wait_for("holding")
            holder.kill()
    assert_granted(program, env, 1024)
    assert gpu.peak() == GIB


def test_more_processes_than_slots_may_come_and_go(gpu, program, slice_env):
    env = slice_env(gpu, GIB)
    script = f"for i in $(seq 300); do {program('allocate')} 1 || exit 1; done"
    done = run(["sh", "-c", script], env)
    assert done.lines == ["cuMemAlloc_v2(&allocation, requested) -> 0 pointer=p0"] * 300
    assert_granted(program, env, 1024)


# fork, exec, vfork, threads.


def test_parent_and_child_of_a_fork_before_cuda_share_the_limit(gpu, run_limited):
    done = run_limited(gpu, GIB, "fork_before_init", 512)
    assert granted(done) == [True, True]
    assert gpu.peak() == GIB
    assert granted(run_limited(gpu, GIB, "fork_before_init", 513)) == [True, False]
    assert gpu.peak() == GIB


def test_a_fork_before_cuda_sees_no_difference(trace_pair):
    bare, limited = trace_pair("fork_before_init", GIB, 256)
    assert limited == bare


@pytest.mark.parametrize("env", [{}, {"VFORK": "1"}])
def test_an_exec_d_child_is_a_separate_process(gpu, run_limited, trace_pair, env):
    bare, limited = trace_pair("fork_worker", GIB, 256, env=env)
    assert limited == bare
    assert granted(run_limited(gpu, GIB, "fork_worker", 512, env=env)) == [True, True]
    assert gpu.peak() == GIB
    assert granted(run_limited(gpu, GIB, "fork_worker", 513, env=env)) == [True, False]
    assert gpu.peak() == GIB


@pytest.mark.parametrize("delay", [0, 50])
def test_exec_releases_the_memory_of_the_process(stub_server, run_limited, delay):
    gpu = stub_server(free_delay_ms=delay)
    done = run_limited(gpu, GIB, "exec_self", MOST)
    assert done.lines == ["before exec: 0", "after exec: 0"]
    assert gpu.peak() == MOST * MIB


# Programs that pull the ground away.


def test_a_program_that_closes_all_descriptors_keeps_its_memory(gpu, program, slice_env, probe):
    """Each with a card of its own in its own process, so that closing harms no connection."""
    env = slice_env(gpu, GIB)
    del env["STUB_GPU_SOCKET"]
    with Started([program("close_range"), "600"], env) as daemon:
        daemon.wait_for("holding")
        slice_probe = probe(env)
        assert not slice_probe.grants(425)
        assert slice_probe.grants(424)
        done = daemon.finish()
    assert granted(done) == [True, False]
    assert any(line.startswith("descriptor ") and line.endswith(": 1") for line in done.lines)
    assert_granted(program, env, 1024)


@pytest.mark.parametrize("what", ["setuid", "chroot"])
def test_a_program_that_gives_up_its_rights_or_its_root_continues(
    gpu, program, tmp_path, slice_env, what
):
    empty = tmp_path / "empty"
    empty.mkdir()
    env = {**slice_env(gpu, GIB), "EMPTY": str(empty)}
    with Started([program("hold"), "64"], env) as neighbour:
        neighbour.wait_for("holding")
        done = run([program("give_up"), what, str(MOST)], env)
    assert granted(done) == [True, False, True], done.out
    assert_granted(program, env, 1024)
    assert gpu.peak() == GIB


def test_a_killed_process_does_not_delay_its_neighbours(gpu, program, slice_env):
    """Kills in the middle of allocating: neighbours whose parts fit are never refused or stuck."""
    env = slice_env(gpu, GIB)
    with Started([program("partition"), "256", "20000", "1"], env) as survivor:
        for seed in range(20):
            with Started([program("partition"), "32", "100000000", str(seed)], env) as victim:
                gpu.wait_until(lambda gpu, pid=victim.pid: calls_of(gpu, pid) > 50)
                victim.kill()
        assert survivor.finish().lines == ["none refused"]
    assert gpu.peak() <= GIB


def calls_of(gpu, pid):
    """Allocations that a process has made so far."""
    mine = [p for p in gpu.ledger()["processes"] if p["pid"] == pid]
    return sum(p["calls"].get("cuMemAlloc_v2", 0) for p in mine)
