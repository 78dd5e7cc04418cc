"""One test for each thing that went wrong, named for it."""

import os
import subprocess
import time

import pytest

from support.running import Started, base_environment, run
from support.slices import GIB, MIB


def test_memory_of_a_program_that_ended_was_refused_to_the_next(gpu, program, preload, slice_dir):
    env = preload(gpu, slice_dir({gpu.uuids()[0]: GIB}))
    take = [program("take_and_leave"), "1024"]
    assert [run(take, env).code for _ in range(8)] == [0] * 8
    assert gpu.peak() == GIB


def test_a_refused_destroy_made_a_concurrent_free_lose_its_bytes(run_limited, gpu):
    done = run_limited(gpu, GIB, "destroy_refused")
    assert done.lines == ["failed=0 held=0"]


@pytest.mark.parametrize("card", [0, 1, 2])
def test_hami_s_limit_of_a_card_was_applied_to_another_card(
    stub_server, program, by_variables, card
):
    gpu = stub_server("a100,a100,a100")
    limits = [3, 1, 2]
    env = by_variables(
        gpu, **{f"CUDA_DEVICE_MEMORY_LIMIT_{i}": f"{limit}g" for i, limit in enumerate(limits)}
    )
    limit = limits[card] * GIB
    done = run([program("late_choice"), str(card)], env)
    assert done.lines == [f"driver={limit} nvml={limit}"]


def test_a_relative_account_path_was_lost_after_chdir(gpu, by_variables, program, tmp_path):
    cache = {"CUDA_DEVICE_MEMORY_SHARED_CACHE": "./cache"}
    env = by_variables(gpu, CUDA_DEVICE_MEMORY_LIMIT="1g", **cache)
    done = run([program("late_choice"), "0"], env, cwd=tmp_path)
    assert done.lines == [f"driver={GIB} nvml={GIB}"]


def test_a_variable_in_an_inner_slice_limited_the_outer_slice(gpu, program, preload, slice_dir):
    """A neighbour holds 3 of the outer 4 GiB; the inner slice may have 1 GiB of its own."""
    uuid = gpu.uuids()[0]
    outer, inner = slice_dir({uuid: 4 * GIB}), slice_dir({uuid: 2 * GIB})
    with Started([program("hold"), "3072"], preload(gpu, outer)) as neighbour:
        neighbour.wait_for("holding")
        env = {**preload(gpu, f"{outer}:{inner}"), "CUDA_DEVICE_MEMORY_LIMIT": "1g"}
        assert run([program("take_and_leave"), "1024"], env).code == 0
        assert run([program("take_and_leave"), "1025"], env).code == 2


@pytest.mark.parametrize("size", [1, 2048])
def test_an_allocation_into_null_was_refused_as_too_large(trace_pair, size):
    bare, limited = trace_pair("allocate_into_null", GIB, size)
    assert limited == bare


def test_a_refusal_into_a_broken_pipe_killed_the_program(gpu, artifacts, program):
    env = {
        **base_environment(),
        **gpu.env,
        "LD_PRELOAD": str(artifacts.library),
        "CUDA_DEVICE_MEMORY_LIMIT": "lots",
    }
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [program("initialise")],
            env=env,
            stderr=writer,
            stdout=subprocess.PIPE,
            restore_signals=True,
            timeout=30,
            check=False,
        )
    finally:
        os.close(writer)
    assert done.returncode == 0
    assert done.stdout.startswith(b"cuInit(0) -> 100")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a PID namespace")
def test_memory_of_a_program_that_mapped_low_addresses_was_given_away(
    gpu, program, preload, slice_dir, probe
):
    """It removed the mapping of its liveness lock. NVML knew no better, because it shows the pids
    of another namespace.
    """
    env = preload(gpu, slice_dir({gpu.uuids()[0]: GIB}))
    hold = ["unshare", "--pid", "--fork", "--kill-child", program("map_over_low_memory"), "600"]
    with Started(hold, env) as holding:
        holding.wait_for("holding")
        neighbour = probe(env)
        until = time.monotonic() + 1.5  # twice the time that dead programs keep their memory
        while time.monotonic() < until:
            assert not neighbour.grants(600)
        assert holding.finish().code == 0
    assert gpu.peak() == 600 * MIB


def test_a_child_hung_that_was_forked_while_a_thread_looked_up_its_caller(run_limited, gpu):
    """Two call sites of that thread shared an entry of the library's cache, so it searched for each
    call, under the loader's lock. In the child nobody released the lock.
    """
    done = run_limited(gpu, GIB, "fork_at_colliding_calls", "100")
    assert done.lines == ["ended=100"]
