"""Bugs with pools, each with the smallest program that showed it."""

import pytest

from support.console import OUT_OF_MEMORY, SUCCESS
from support.memory_use import accounted, agreed, held, refusals
from support.running import Started, run
from support.slices import GIB, MIB

FOREVER = {"command": "kernels", "kernels": {"*": 3_600_000_000}}


def test_a_refusal_in_a_thread_without_a_context_leaves_nothing_behind(gpu, start):
    """The driver frees only in a context."""
    script = start(gpu, GIB)
    script.do("stream s", "alloc a 1014M", "current -")
    for _ in range(3):
        assert script("async b 1M s") == OUT_OF_MEMORY
    assert agreed(gpu, script.slice) == 1014 * MIB
    assert gpu.peak() <= GIB


def test_the_pool_that_is_charged_is_the_one_that_is_allocated_from(gpu, program, slice_env):
    env = slice_env(gpu, 300 * MIB)
    with Started([program("pool_changes"), "300"], env) as changes:
        changes.wait_for("at rest")
        assert accounted(env["HAMI_SLICE"]) == held(gpu) != {}
    assert gpu.peak() <= 300 * MIB


def test_a_destroyed_pool_is_charged_until_its_last_free_has_run(gpu, start):
    gpu.control(FOREVER)
    script = start(gpu, GIB)
    script.do("stream s", "pool m 0", "from_pool a 800M m s", "busy s", "free_async a s")
    script.do("destroy_pool m")
    assert script("alloc b 900M") == OUT_OF_MEMORY
    assert agreed(gpu, script.slice) == 800 * MIB


def test_the_last_free_ends_a_destroyed_pool_without_waiting_for_anything(gpu, start):
    script = start(gpu, GIB)
    script.do("pool m 0", "from_pool a 800M m -", "destroy_pool m", "free a")
    assert agreed(gpu, script.slice) == 0
    assert start(gpu, script.slice)("alloc b 800M") == SUCCESS


def test_a_destroyed_pool_allocates_nothing(gpu, start):
    script = start(gpu, GIB)
    script.do("pool m 0", "use_pool m 0", "from_pool a 1M m -", "destroy_pool m")
    assert script("from_pool b 1M m -") == 1
    assert script("destroy_pool m") == 1
    script.do("current_pool c 0", "async b 1M -", "default_pool d 0", "get d 5")
    assert script.outputs == f"5:{32 * MIB}"


def test_odd_sizes_add_up(gpu, start):
    """The account rounds every charge up."""
    script = start(gpu, 33 * MIB)
    for _ in range(50):
        script.do("async a 100 -", "free_async a -", "sync -")
    assert accounted(script.slice) == held(gpu) == {}


def test_a_small_request_is_not_refused_for_a_large_one(gpu, run_limited):
    assert run_limited(gpu, 96 * MIB, "pool_neighbours").lines == ["refused 0"]


@pytest.mark.parametrize("kind", ["async b 40M -", "alloc b 40M", "managed b 40M 1"])
def test_one_refusal_counts_once(gpu, start, kind):
    script = start(gpu, 100 * MIB)
    script.do("async a 60M -", "stream s", "async c 2M s")
    for count in range(1, 4):
        assert script(kind) == OUT_OF_MEMORY
        assert refusals(script.slice) == count


def test_a_refused_destroy_does_not_empty_the_default_pool(gpu, start):
    script = start(gpu, GIB)
    script.do("default_pool d 0", "set d 4 4G", "async a 100M -", "free_async a -", "sync -")
    assert script("destroy_pool d") == 1
    script.do("get d 5")
    assert script.outputs == f"5:{100 * MIB}"


def test_a_thread_that_waits_in_the_driver_can_be_cancelled(artifacts, program):
    driver = program("waiting_driver")
    directory = driver.parent / "driver"
    directory.mkdir(exist_ok=True)
    (directory / "libcuda.so.1").symlink_to(driver)
    env = {"LD_LIBRARY_PATH": str(directory)}
    command = [program("cancel")]
    assert run(command, env).lines == ["cancelled"]
    assert run(command, {**env, "LD_PRELOAD": str(artifacts.library)}).lines == ["cancelled"]
