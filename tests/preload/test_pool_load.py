"""Pools under load: streams that are busy, threads and processes that do everything at random."""

import contextlib

import pytest

from support.console import OUT_OF_MEMORY
from support.memory_use import accounted, agreed, held, held_peak, wait_for_use
from support.running import Started, run
from support.slices import GIB, MIB

# Streams with work that does not end while the test runs.

FOREVER = {"command": "kernels", "kernels": {"*": 3_600_000_000}}


def test_memory_freed_on_a_busy_stream_stays_with_the_stream_until_the_free_runs(gpu, start):
    gpu.control(FOREVER)
    script = start(gpu, GIB)
    script.do("stream s", "stream t", "busy s", "async a 600M s", "free_async a s", "sync t")
    assert (gpu.held(), agreed(gpu, script.slice)) == (0, 600 * MIB)
    assert start(gpu, script.slice)("alloc a 500M") == OUT_OF_MEMORY
    for stream in "ts":
        assert script(f"async b 600M {stream}") == OUT_OF_MEMORY
        assert agreed(gpu, script.slice) == 600 * MIB
    assert held_peak(gpu) == 600 * MIB


def test_a_request_waits_for_its_stream_to_free_what_it_needs(gpu, start):
    gpu.control({"command": "kernels", "kernels": {"*": 50_000}})
    script = start(gpu, GIB)
    script.do("stream s", "async a 600M s")
    for _ in range(3):
        script.do("busy s", "free_async a s", "async a 600M s")
    assert agreed(gpu, script.slice) == held_peak(gpu) == 600 * MIB


@pytest.mark.parametrize("take", ["async b {} {}", "from_pool b {} m {}"])
def test_a_refusal_on_a_busy_stream_leaves_nothing_behind(gpu, start, take):
    """A free in the stream's order would come too late: chunk upon chunk would pass the limit."""
    gpu.control(FOREVER)
    script = start(gpu, 900 * MIB)
    # Each stream has more to do than the next, so that none may use what the one before freed.
    script.do("pool m 0", *(f"stream {name}" for name in "stuv"))
    script.do(*(f"busy {name}" for name in "sssstttuuv"))
    script.do(take.format("500M", "s"), "free_async b s")
    for name in "tu":
        assert script(take.format("500M", name)) == OUT_OF_MEMORY
        assert agreed(gpu, script.slice) == 500 * MIB
    assert held_peak(gpu) == 500 * MIB


# Storms.


def rest(gpu, env, program, seeds, rounds):
    """Storms with these seeds in one slice, until they rest; then until they are empty."""
    directory = env["HAMI_SLICE"]
    with contextlib.ExitStack() as stack:
        storms = [
            stack.enter_context(Started([program("pool_storm"), str(rounds), str(seed)], env))
            for seed in seeds
        ]
        for storm in storms:
            storm.wait_for("at rest")
        assert accounted(directory) == held(gpu)
        for storm in storms:
            storm.tell("")
            storm.wait_for("empty")
        assert accounted(directory) == held(gpu) == {}
        for storm in storms:
            done = storm.finish()
            assert done.code == 0, done
            assert int(done.lines[0].split()[1]) > 0


@pytest.mark.parametrize("limit", [256 * MIB, GIB])
def test_threads_that_stress_their_pools_never_pass_the_limit(gpu, program, slice_env, limit):
    env = slice_env(gpu, limit)
    rest(gpu, env, program, seeds=[1], rounds=5000)
    assert limit // 2 < gpu.peak() <= held_peak(gpu) <= limit


def test_processes_that_stress_their_pools_never_pass_the_limit(gpu, program, slice_env):
    env = slice_env(gpu, GIB)
    rest(gpu, env, program, seeds=range(4), rounds=1500)
    assert GIB // 2 < gpu.peak() <= held_peak(gpu) <= GIB


def test_killed_stress_programs_leave_nothing_behind(gpu, program, slice_env):
    env = slice_env(gpu, GIB)
    with contextlib.ExitStack() as stack:
        for seed in range(4):
            storm = Started([program("pool_storm"), "100000000", str(seed)], env)
            stack.enter_context(storm)
            gpu.wait_until(lambda gpu: gpu.calls()["cuMemAllocFromPoolAsync"] > 0)
        gpu.wait_until(lambda gpu: gpu.calls()["cuMemAllocFromPoolAsync"] > 2000)
    wait_for_use(gpu, env["HAMI_SLICE"], 0)
    assert held_peak(gpu) <= GIB
    assert run([program("allocate"), "1024"], env).lines[0].endswith("-> 0 pointer=p0")


@pytest.mark.parametrize("limit", [200 * MIB, 4 * GIB])
def test_pools_created_and_destroyed_repeatedly_leave_nothing(gpu, program, slice_env, limit):
    env = slice_env(gpu, limit)
    with Started([program("pool_churn"), "500"], env) as churn:
        churn.wait_for("at rest")
        assert accounted(env["HAMI_SLICE"]) == held(gpu) == {}
    assert 0 < held_peak(gpu) <= limit
