"""Memory pools are charged for the memory that they reserve, not only for the part in use.

The stub's pools grow by 32 MiB, more for bigger requests, and release whole chunks at the next
synchronisation. The ledger has the memory that they hold. Our account must agree with it when no
call is in progress, and the requests of programs must never pass the limit.
"""

import pytest

from support.console import OUT_OF_MEMORY, SUCCESS
from support.memory_use import agreed, refusals
from support.slices import GIB, MIB

#: The memory that a pool reserves for a small request.
CHUNK = 32 * MIB

#: The preparation, and the command that allocates bytes from a pool.
ALLOCATIONS = {
    "the default pool": ([], "async {to} {size} -"),
    "the default pool by name": (["default_pool m 0"], "from_pool {to} {size} m -"),
    "a stream": (["stream s"], "async {to} {size} s"),
    "the legacy stream": ([], "async {to} {size} L"),
    "the thread's stream": ([], "async {to} {size} P"),
    "a pool of its own": (["pool m 0"], "from_pool {to} {size} m -"),
    "a pool of its own on a stream": (["stream s", "pool m 0"], "from_pool {to} {size} m s"),
    "another pool made current": (["pool m 0", "use_pool m 0"], "async {to} {size} -"),
    "the per-thread form": ([], "ptsz async {to} {size} -"),
    "the per-thread form from a pool": (["pool m 0"], "ptsz from_pool {to} {size} m -"),
    "another thread": (["pool m 0"], "thread from_pool {to} {size} m -"),
}
each_allocation = pytest.mark.parametrize("allocation", ALLOCATIONS.values(), ids=ALLOCATIONS)

#: The calls that release a pool's free chunks to the card.
ENDS = ["sync -", "sync s", "sync_context", "sync_new_event -", "query -", "query_new_event -"]
ENDS += ["ptsz sync -", "ptsz query -", "trim d 0"]


def requested(gpu, card=0):
    return gpu.ledger()["cards"][card]["requested"]["now"]


# Charges.


@each_allocation
@pytest.mark.parametrize("size", [512, MIB, 33 * MIB, 100 * MIB + 512])
def test_a_pool_is_charged_for_its_reserved_memory(gpu, start, allocation, size):
    first, take = allocation
    script = start(gpu, GIB)
    script.do(*first, take.format(to="a", size=size))
    assert requested(gpu) == size
    reserved = agreed(gpu, script.slice)
    assert reserved == (CHUNK if size <= CHUNK else -(-size // (2 * MIB)) * 2 * MIB)
    script.do(take.format(to="b", size=512))
    assert agreed(gpu, script.slice) >= reserved


@each_allocation
def test_a_pool_request_over_the_limit_is_refused_and_not_charged(gpu, start, allocation):
    first, take = allocation
    script = start(gpu, GIB)
    script.do(*first, take.format(to="a", size="600M"))
    assert agreed(gpu, script.slice) == 600 * MIB
    assert script(take.format(to="b", size="600M")) == OUT_OF_MEMORY
    assert script.outputs == "NULL"
    assert agreed(gpu, script.slice) == 600 * MIB
    assert refusals(script.slice) == 1
    assert script(take.format(to="b", size="424M")) == SUCCESS
    assert agreed(gpu, script.slice) == GIB
    assert script(take.format(to="c", size="2M")) == OUT_OF_MEMORY
    assert agreed(gpu, script.slice) == GIB
    assert gpu.peak() <= GIB


@each_allocation
@pytest.mark.parametrize("free", ["free_async a -", "free a", "ptsz free_async a -"])
def test_freed_pool_memory_is_released_at_the_next_wait(gpu, start, allocation, free):
    first, take = allocation
    script = start(gpu, GIB)
    for _ in range(3):
        script.do(*first, take.format(to="a", size="700M"), free)
        agreed(gpu, script.slice)
        script.do("sync_context")
        assert agreed(gpu, script.slice) == 0
        first = []
    assert gpu.peak() == 700 * MIB


@pytest.mark.parametrize("free", ["free_async a t", "thread free_async a -", "thread free a"])
def test_pool_memory_may_be_freed_on_another_stream_or_thread(gpu, start, free):
    script = start(gpu, GIB)
    script.do("stream s", "stream t", "async a 700M s", free, "sync s", "sync t", "sync -")
    assert agreed(gpu, script.slice) == 0


def test_a_stream_of_another_card_uses_that_card_s_pool(stub_server, start):
    gpu = stub_server("a100,a100")
    script = start(gpu, GIB)
    script.do("device 1", "stream s", "device 0", "async a 600M s")
    assert script("async b 600M s") == OUT_OF_MEMORY
    assert script("async b 600M -") == SUCCESS
    assert [agreed(gpu, script.slice, card) for card in range(2)] == [600 * MIB, 600 * MIB]
    script.do("free_async a s", "sync s")
    assert [agreed(gpu, script.slice, card) for card in range(2)] == [600 * MIB, 0]


@pytest.mark.parametrize("take", ["async {} 600M s", "from_pool {} 600M m s"])
def test_a_thread_without_a_context_is_charged_as_its_stream_is(gpu, start, take):
    script = start(gpu, GIB)
    script.do("stream s", "pool m 0", "current -")
    granted = [script(take.format(name)) for name in "ab"]
    assert SUCCESS not in granted[1:]
    agreed(gpu, script.slice)
    assert gpu.peak() <= GIB
    script("free_async a s")
    script.do("device 0", "sync_context")
    assert agreed(gpu, script.slice) == 0


def test_a_stream_destroyed_with_a_pending_free_releases_the_memory(gpu, start):
    script = start(gpu, GIB)
    script.do("stream s", "async a 700M s", "free_async a s", "destroy_stream s", "sync_context")
    assert agreed(gpu, script.slice) == 0


def test_a_pool_with_the_handle_of_a_destroyed_one_is_charged_separately(gpu, start):
    script = start(gpu, GIB)
    for _ in range(3):
        script.do("pool m 0", "from_pool a 100M m -", "destroy_pool m")
        script.do("pool n 0", "from_pool b 600M n -", "free a", "sync -")
        assert agreed(gpu, script.slice) == 600 * MIB
        script.do("from_pool c 400M n -", "free_async b -", "free_async c -", "sync -")
        assert agreed(gpu, script.slice) == 0
        script.do("destroy_pool n")


# Memory that pools keep.


@pytest.mark.parametrize("end", ENDS)
def test_memory_that_a_pool_keeps_is_charged_until_a_wait_releases_it(
    gpu, start, preload, probe, end
):
    script = start(gpu, GIB)
    other = probe(preload(gpu, script.slice))
    script.do("stream s", "default_pool d 0", "async a 800M -", "free_async a -")
    assert agreed(gpu, script.slice) == 800 * MIB
    assert not other.grants(225)
    script.do(end)
    assert agreed(gpu, script.slice) == 0
    assert other.grants(1024)


@pytest.mark.parametrize("end", ENDS[:-1])
def test_a_release_threshold_keeps_it_until_the_pool_is_trimmed(gpu, start, preload, probe, end):
    script = start(gpu, GIB)
    other = probe(preload(gpu, script.slice))
    script.do("stream s", "default_pool d 0", "set d 4 1G", "async a 800M -", "free_async a -", end)
    assert agreed(gpu, script.slice) == 800 * MIB
    assert requested(gpu) == 0
    assert not other.grants(225)
    assert other.grants(224)
    script.do("trim d 0")
    assert agreed(gpu, script.slice) == 0
    assert other.grants(1024)


def test_a_request_that_fits_into_a_pool_s_free_memory_is_granted_at_the_limit(gpu, start, preload):
    script = start(gpu, GIB)
    script.do("default_pool d 0", "set d 4 4G", "async a 1024M -", "free_async a -", "sync -")
    neighbour = start(gpu, script.slice)
    assert neighbour("alloc a 2M") == OUT_OF_MEMORY
    for name in "abcd":
        assert script(f"async {name} 256M -") == SUCCESS
    assert agreed(gpu, script.slice) == GIB
    assert script("async e 2M -") == OUT_OF_MEMORY
    assert gpu.peak() == GIB


def test_a_chunk_over_the_limit_is_released(gpu, start):
    """The request fits, but not the memory that the pool reserves for it, known only afterwards."""
    script = start(gpu, GIB)
    script.do("alloc a 1014M")
    assert script("async b 1M -") == OUT_OF_MEMORY
    assert script.outputs == "NULL"
    assert refusals(script.slice) == 1
    script.do("sync -")
    assert agreed(gpu, script.slice) == 1014 * MIB
    script.do("free a")
    assert script("async b 1M -") == SUCCESS
    assert agreed(gpu, script.slice) == CHUNK


@pytest.mark.parametrize("command", ["alloc b 800M", "managed b 800M 1", "from_pool b 800M m -"])
def test_free_memory_in_its_own_pools_does_not_block_a_program(gpu, start, command):
    script = start(gpu, GIB)
    script.do("default_pool d 0", "set d 4 4G", "pool m 0", "async a 600M -", "free_async a -")
    script.do("sync -")
    assert agreed(gpu, script.slice) == 600 * MIB
    assert script(command) == SUCCESS
    assert agreed(gpu, script.slice) == 800 * MIB
    assert gpu.peak() <= GIB


@pytest.mark.parametrize("end", ["reset 0", "release 0", "destroy c"])
def test_the_end_of_a_context_leaves_account_and_ledger_equal(gpu, start, end):
    """Pools belong to the device: we release exactly the memory that the driver frees."""
    script = start(gpu, GIB)
    script.do("alloc k 16M", "async a 100M -", "context c 0", "alloc l 16M", "async b 200M -", end)
    left = agreed(gpu, script.slice)
    script("device 0")
    script("sync_context")
    assert agreed(gpu, script.slice) <= left


# Processes.


# Never in the way.

ATTRIBUTES = [f"get d {attribute}" for attribute in range(9)]


def test_the_refusal_is_the_driver_s_own(start, stub_server):
    """A full slice with the library behaves like a full card without it, also in later calls."""
    script = [
        "async b 2M -",
        "free_async a -",
        "sync -",
        "async b 2M -",
        "free_async b -",
        "sync -",
    ]
    answers = []
    for limit, size in [(None, 0), (GIB, GIB)]:
        gpu = stub_server()
        told = start(gpu, limit)
        room = size or gpu.ledger()["cards"][0]["total"] - gpu.ledger()["cards"][0]["used"]
        told.do(f"async a {room // (2 * MIB) * 2 * MIB} -")
        answers.append([(told(line), told.outputs) for line in script])
    assert [code for code, _ in answers[0]] == [2, 0, 0, 0, 0, 0]
    assert answers[1] == answers[0]
