"""Memory pools: a slice is charged for what its pools hold of the card, in use or not.

A pool keeps memory that is freed into it, and no other process can use that memory.
"""

import pytest

from support.console import (
    OUT_OF_MEMORY,
    RELEASE_THRESHOLD,
    RESERVED_NOW,
    SUCCESS,
    USED_NOW,
)
from support.slices import GIB, MIB

LIMIT = 512 * MIB
STEP = 64 * MIB
#: Makes the pool keep everything that is freed into it.
KEEP_ALL = f"set p {RELEASE_THRESHOLD} {(1 << 64) - 1}"

#: The commands that open each pool, and the one that allocates from it. The console calls the pool
#: `p`.
POOLS = {
    "default": ("default_pool p 0", "async a {size} -"),
    "created": ("pool p 0", "from_pool a {size} p -"),
}

each_pool = pytest.mark.parametrize("pool", POOLS)
each_lookup = pytest.mark.parametrize("lookup", ["dlsym", "proc_address"])


@pytest.fixture
def allocate(pool):
    """`allocate(console)` opens the pool and returns the command that allocates from it."""

    def command(console):
        opening, allocation = POOLS[pool]
        console.do(opening)
        return allocation

    return command


def reserved(console):
    """Bytes of the card that the pool holds, as the driver reports them."""
    return console.attribute("p", RESERVED_NOW)


@each_lookup
@each_pool
def test_allocation_from_a_pool_stops_at_the_limit(card, allocate, lookup):
    limited = card.slice(LIMIT)
    with limited.console(lookup) as console:
        command = allocate(console)
        before = card.used()
        had, code = console.fill(command, STEP, 2 * LIMIT)
        grown = card.used() - before
        assert code == OUT_OF_MEMORY
        assert LIMIT - STEP <= had <= LIMIT
        assert had <= grown <= LIMIT + card.slack
        assert reserved(console) <= LIMIT
    if card.stub:
        assert limited.ledger()["peak"] <= LIMIT


@each_pool
def test_a_slice_is_charged_for_what_its_pool_has_reserved(card, allocate):
    limited = card.slice(LIMIT)
    with limited.console() as console:
        command = allocate(console)
        console.do(KEEP_ALL)
        console.do(command.format(size=MIB), command.replace(" a ", " b ").format(size=100 * MIB))
        assert limited.usage() == reserved(console) >= 101 * MIB
        console.do("free_async a", "free_async b", "sync_context")
        # The pool keeps it, so it stays charged.
        assert limited.usage() == reserved(console) >= 101 * MIB
        assert console.attribute("p", USED_NOW) == 0
        if card.stub:
            assert limited.ledger("held")["now"] == limited.usage()


@each_pool
def test_memory_that_a_pool_returns_can_be_allocated_otherwise(card, allocate):
    """The release threshold is 0 by default: a synchronisation releases everything."""
    limited = card.slice(LIMIT)
    with limited.console() as console:
        command = allocate(console)
        console.do(command.format(size=LIMIT - STEP))
        assert console(f"alloc b {LIMIT // 2}") == OUT_OF_MEMORY
        console.do("free_async a")
        console.do("sync_context")
        console.do(f"alloc a {LIMIT // 2}")
        assert limited.usage() == LIMIT // 2 + reserved(console)


@each_pool
def test_memory_that_a_pool_keeps_is_unavailable_until_it_is_trimmed(card, allocate):
    limited = card.slice(LIMIT)
    with limited.console() as console, limited.console() as other:
        command = allocate(console)
        console.do(KEEP_ALL)
        console.do(command.format(size=LIMIT - STEP))
        console.do("free_async a")
        console.do("sync_context")
        assert other(f"alloc b {LIMIT // 2}") == OUT_OF_MEMORY
        console.do("trim p 0")
        assert limited.usage() == reserved(console) == 0
        other.do(f"alloc a {LIMIT // 2}")


@each_pool
def test_memory_in_its_own_pool_does_not_block_a_program(card, allocate):
    limited = card.slice(LIMIT)
    with limited.console() as console:
        command = allocate(console)
        console.do(KEEP_ALL)
        console.do(command.format(size=LIMIT - STEP), "free_async a")
        console.do("sync_context")
        before = card.used()
        console.do(f"alloc a {LIMIT}")
        # It replaces what the pool kept.
        assert card.used() - before <= STEP + card.slack
        assert limited.usage() == LIMIT


@each_pool
def test_memory_of_a_pool_can_be_freed_with_the_plain_call(card, allocate):
    limited = card.slice(LIMIT)
    with limited.console() as console:
        command = allocate(console)
        console.do(command.format(size=100 * MIB))
        assert limited.usage() >= 100 * MIB
        console.do("free a")
        console.do("sync_context")
        assert limited.usage() == reserved(console)
        console.do("trim p 0")
        assert limited.usage() == 0


def test_plain_memory_can_be_freed_in_stream_order(card):
    limited = card.slice(LIMIT)
    with limited.console() as console:
        console.do(f"alloc a {LIMIT}")
        assert limited.usage() == LIMIT
        console.do("free_async a")
        console.do("sync_context")
        assert limited.usage() == 0
        console.do(f"alloc a {LIMIT}")


def test_destroying_a_pool_returns_its_cached_memory(card):
    limited = card.slice(LIMIT)
    with limited.console() as console:
        console.do("pool p 0", KEEP_ALL, "from_pool a 200M p -")
        console.do("free_async a")
        console.do("sync_context")
        assert limited.usage() >= 200 * MIB
        console.do("destroy_pool p")
        card.wait_until(lambda: limited.usage() == 0, "the destroyed pool's bytes are uncharged")


def test_pools_and_plain_memory_share_one_limit(card):
    limited = card.slice(LIMIT)
    with limited.console() as console:
        before = card.used()
        console.do("alloc a 200M")
        had, code = console.fill("async b {size} -", STEP, LIMIT)
        grown = card.used() - before
        assert code == OUT_OF_MEMORY
        assert had <= LIMIT - 200 * MIB
        assert grown <= LIMIT + card.slack
        assert console.value("info", "free") == LIMIT - limited.usage()


def test_a_request_that_makes_a_pool_exceed_the_limit_is_refused(card):
    """A pool takes more of the card than requested; memory over the limit is released at once."""
    limited = card.slice(48 * MIB)
    with limited.console() as console:
        console.do("default_pool p 0", "alloc a 40M")
        assert console("async b 16M -") == OUT_OF_MEMORY
        console.do("sync_context")
        assert limited.usage() == 40 * MIB
        console.do("alloc b 8M")


def test_pools_of_a_killed_process_are_released(card):
    limited = card.slice(LIMIT)
    with limited.console() as survivor:
        with limited.console() as victim:
            victim.do("default_pool p 0", KEEP_ALL, f"async a {LIMIT - STEP} -", "free_async a")
            victim.do("sync_context")
            assert survivor(f"alloc b {GIB // 4}") == OUT_OF_MEMORY
            victim.kill()
        card.wait_until(lambda: survivor(f"alloc a {LIMIT}") == SUCCESS, "the limit is free again")
