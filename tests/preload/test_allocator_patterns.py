"""Programs that take memory as the allocators of real frameworks do get their limit, and no more.

PyTorch's expandable segments and its graphs over `cudaMallocAsync`, llama.cpp's pool, NCCL's exchange
of buffers between processes, and programs that hold physical memory in unusual ways. The ledger says
what they hold: never more than the limit, almost all of it where they ask for everything, and
nothing at their end, so that other processes of the slice can use it.
"""

import contextlib
from itertools import permutations

import pytest

from support.console import OUT_OF_MEMORY, SUCCESS, Console
from support.memory_use import accounted, agreed, held, wait_for_use
from support.running import Started
from support.slices import GIB, MIB
from support.traces import value

LIMIT = 2 * GIB
SEED = 20260713

#: The part of a limit that a program must be able to use.
USABLE = 0.999


def stage(started, name):
    """Wait for this stage; the bytes that the program says it has."""
    word, _, bytes = started.next_line().partition(" ")
    assert word == name
    return int(bytes)


def used_at(gpu, slice, started, name):
    """The bytes that a program holds at a stage: by itself, by the ledger, and by the account."""
    bytes = stage(started, name)
    assert agreed(gpu, slice) == bytes
    assert gpu.peak() <= LIMIT
    return bytes


def is_free(gpu, start, slice, card=0):
    """A new process of the slice can use all of a card's limit."""
    other = start(gpu, slice, card)
    other.do(f"alloc a {LIMIT}", "free a")
    other.kill()


# PyTorch's expandable segments.


@pytest.mark.parametrize("handles", ["release", "keep"])
@pytest.mark.parametrize("threads", [1, 4])
def test_expandable_segments_use_the_limit_and_return_all_of_it(
    gpu, program, slice_env, start, handles, threads
):
    env = slice_env(gpu, LIMIT)
    slice = env["HAMI_SLICE"]
    print("seed", SEED)
    command = [program("expandable_segments"), handles, threads, 3000 // threads, SEED]
    with Started(command, env) as torch:
        assert used_at(gpu, slice, torch, "full") >= LIMIT * USABLE
        torch.tell("")
        holes = used_at(gpu, slice, torch, "holes")
        assert 0.4 * LIMIT < holes < 0.6 * LIMIT
        # The holes are another process's to use, and no byte more.
        other = start(gpu, slice)
        assert other(f"alloc a {LIMIT - holes + 512}") == OUT_OF_MEMORY
        other.do(f"alloc a {LIMIT - holes}")
        assert agreed(gpu, slice) == LIMIT
        other.do("free a")
        other.kill()
        wait_for_use(gpu, slice, holes)
        torch.tell("")
        used_at(gpu, slice, torch, "churned")
        torch.tell("")
        assert used_at(gpu, slice, torch, "empty") == 0
        is_free(gpu, start, slice)
        torch.tell("")
        done = torch.finish()
    assert (done.code, done.err) == (0, "")
    _, retries, _, refusals = done.lines[-1].split()
    # Otherwise the tensors would never have been out of memory, and nothing would be tested.
    assert int(retries) > 10
    assert int(refusals) > 10


@pytest.mark.parametrize("handles", ["release", "keep"])
def test_processes_with_expandable_segments_never_pass_the_limit(
    gpu, program, slice_env, start, handles
):
    env = slice_env(gpu, LIMIT)
    slice = env["HAMI_SLICE"]
    print("seed", SEED)
    with contextlib.ExitStack() as stack:
        all = [
            stack.enter_context(
                Started([program("expandable_segments"), handles, 2, 1500, SEED + number], env)
            )
            for number in range(0, 30, 10)
        ]
        assert sum(stage(torch, "full") for torch in all) >= LIMIT * USABLE
        for next_stage in ["holes", "churned"]:
            for torch in all:
                torch.tell("")
            bytes = [stage(torch, next_stage) for torch in all]
            assert held(gpu) == {
                torch.pid: size for torch, size in zip(all, bytes, strict=True) if size
            }
            assert agreed(gpu, slice) == sum(bytes)
        # One is killed, and the others return what they have.
        all[0].kill()
        wait_for_use(gpu, slice, sum(bytes[1:]))
        for torch in all[1:]:
            torch.tell("")
            assert stage(torch, "empty") == 0
        assert agreed(gpu, slice) == 0
        is_free(gpu, start, slice)
    assert gpu.peak() == LIMIT


@pytest.mark.parametrize("handles", ["release", "keep"])
def test_a_limit_above_the_card_changes_nothing_for_expandable_segments(trace_pair, handles):
    """They fill the card, and its driver refuses them as often."""
    print("seed", SEED)
    arguments = ["expandable_segments", 40 * GIB, handles, 1, 3000, SEED]
    bare, limited = trace_pair(*arguments, input="\n" * 4)
    assert bare[-1] == "exit code: 0"
    assert limited == bare


# llama.cpp's pool.


def test_a_pool_that_grows_uses_the_limit_and_is_unmapped_at_once(gpu, program, slice_env, start):
    env = slice_env(gpu, LIMIT)
    slice = env["HAMI_SLICE"]
    print("seed", SEED)
    with Started([program("growing_pool"), "3", str(SEED)], env) as llama:
        assert used_at(gpu, slice, llama, "host") == 0
        llama.tell("")
        for _ in range(3):
            assert used_at(gpu, slice, llama, "full") >= LIMIT * USABLE
            llama.tell("")
            assert used_at(gpu, slice, llama, "empty") == 0
            is_free(gpu, start, slice)
            llama.tell("")
        assert llama.finish().code == 0


def test_pools_that_grow_in_several_processes_share_the_limit(gpu, program, slice_env, start):
    env = slice_env(gpu, LIMIT)
    slice = env["HAMI_SLICE"]
    print("seed", SEED)
    with contextlib.ExitStack() as stack:
        all = [
            stack.enter_context(Started([program("growing_pool"), "1", str(SEED + number)], env))
            for number in range(3)
        ]
        for llama in all:
            assert stage(llama, "host") == 0
        for llama in all:
            llama.tell("")
        assert sum(stage(llama, "full") for llama in all) >= LIMIT * USABLE
        assert agreed(gpu, slice) == gpu.peak() <= LIMIT
        for llama in all:
            llama.tell("")
            assert stage(llama, "empty") == 0
        is_free(gpu, start, slice)


# Physical memory that is held in unusual ways.


@pytest.mark.parametrize("granule", [2, 20, 64])
def test_memory_whose_handle_is_released_at_once_is_limited(gpu, start, granule):
    """Only the mappings hold it: nothing that the program has names it."""
    script = start(gpu, LIMIT)
    script.do(f"reserve r {2 * LIMIT}")
    count = 0
    while (result := script(f"create h {granule}M")) == SUCCESS:
        script.do(f"map r+{count * granule}M h", "release h")
        count += 1
        assert count <= LIMIT // MIB
    assert result == OUT_OF_MEMORY
    assert count == LIMIT // (granule * MIB)
    assert agreed(gpu, script.slice) == count * granule * MIB
    script.do(f"unmap r {count * granule}M")
    assert agreed(gpu, script.slice) == 0
    assert gpu.peak() <= LIMIT
    is_free(gpu, start, script.slice)


def test_memory_that_is_never_mapped_is_limited(gpu, start):
    script = start(gpu, LIMIT)
    count = 0
    while script(f"create h{count} 20M") == SUCCESS:
        count += 1
    assert count == LIMIT // (20 * MIB)
    small = 0
    while script(f"create g{small} 2M") == SUCCESS:
        small += 1
    assert agreed(gpu, script.slice) == LIMIT == gpu.peak()
    assert script("alloc a 512") == OUT_OF_MEMORY
    script.do(*(f"release h{number}" for number in range(count)))
    script.do(f"alloc a {count * 20}M")
    script.do(*(f"release g{number}" for number in range(small)), "free a")
    assert agreed(gpu, script.slice) == 0
    is_free(gpu, start, script.slice)


def test_one_allocation_at_many_addresses_is_charged_once(gpu, start):
    script = start(gpu, LIMIT)
    script.do(f"create h {LIMIT // 2}", "reserve r 32G")
    for place in range(16):
        script.do(f"map r+{place}G h")
    assert agreed(gpu, script.slice) == LIMIT // 2
    script.do("release h", "access r+7G 1G", "write r+7G 9")
    for place in range(15):
        script.do(f"unmap r+{place}G 1G")
        assert agreed(gpu, script.slice) == LIMIT // 2
    script.do("access r+15G 1G", "read r+15G")
    assert script.outputs == "9"
    assert script(f"create g {LIMIT}") == OUT_OF_MEMORY
    script.do("unmap r+15G 1G", f"create g {LIMIT}", "release g")
    assert agreed(gpu, script.slice) == 0
