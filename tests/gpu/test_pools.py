"""Memory pools: a slice is charged for what its pools hold of the card, in use or not.

A pool keeps what is freed into it, so that is memory which nobody else can have.
"""

import pytest

from gpu.console import (
    DEFAULT_POOL,
    OUT_OF_MEMORY,
    RELEASE_THRESHOLD,
    RESERVED_NOW,
    USED_NOW,
)
from support.slices import GIB, MIB

LIMIT = 512 * MIB
STEP = 64 * MIB
KEEP_ALL = (1 << 64) - 1

each_pool = pytest.mark.parametrize("pool", ["default", "created"])
each_road = pytest.mark.parametrize("road", ["dlsym", "lookup"])


@pytest.fixture
def allocate(pool):
    """How memory of this pool is allocated; the pool's number is the console's."""

    def command(console) -> str:
        console.do("default_pool")
        if pool == "default":
            return "async"
        return f"from_pool {console.do('create_pool')['pool']}"

    return command


def number(command: str) -> int:
    """The pool that a command allocates from."""
    return int(command.split()[1]) if " " in command else DEFAULT_POOL


def reserved(console, pool: int) -> int:
    """Bytes of the card that the pool holds, as the driver says."""
    return console.do("pool_attribute", pool, RESERVED_NOW)["value"]


@each_road
@each_pool
def test_allocation_from_a_pool_stops_at_the_limit(card, allocate, road):
    limited = card.slice(LIMIT)
    with limited.console(road) as console:
        command = allocate(console)
        before = card.used()
        had, code = console.fill(command, STEP, 2 * LIMIT)
        grown = card.used() - before
        assert code == OUT_OF_MEMORY
        assert LIMIT - STEP <= had <= LIMIT
        assert had <= grown <= LIMIT + card.slack
        assert reserved(console, number(command)) <= LIMIT
    if card.stub:
        assert limited.ledger()["peak"] <= LIMIT


@each_pool
def test_a_slice_is_charged_for_what_its_pool_has_reserved(card, allocate):
    limited = card.slice(LIMIT)
    with limited.console() as console:
        command = allocate(console)
        console.do("set_pool_attribute", number(command), RELEASE_THRESHOLD, KEEP_ALL)
        small = console.do(*command.split(), MIB)
        large = console.do(*command.split(), 100 * MIB)
        assert limited.usage() == reserved(console, number(command)) >= 101 * MIB
        for answer in (small, large):
            console.do("free_async", answer["slot"])
        console.do("sync")
        # The pool keeps it, so it stays charged.
        assert limited.usage() == reserved(console, number(command)) >= 101 * MIB
        assert console.do("pool_attribute", number(command), USED_NOW)["value"] == 0
        if card.stub:
            assert limited.ledger("held")["now"] == limited.usage()


@each_pool
def test_what_a_pool_gives_back_can_be_had_otherwise(card, allocate):
    """The release threshold is 0 by default: a synchronisation gives everything back."""
    limited = card.slice(LIMIT)
    with limited.console() as console:
        command = allocate(console)
        slot = console.do(*command.split(), LIMIT - STEP)["slot"]
        assert console.ask("alloc", LIMIT // 2).code == OUT_OF_MEMORY
        console.do("free_async", slot)
        console.do("sync")
        console.do("alloc", LIMIT // 2)
        assert limited.usage() == LIMIT // 2 + reserved(console, number(command))


@each_pool
def test_what_a_pool_keeps_is_not_there_for_others_until_it_is_trimmed(card, allocate):
    limited = card.slice(LIMIT)
    with limited.console() as console, limited.console() as other:
        command = allocate(console)
        console.do("set_pool_attribute", number(command), RELEASE_THRESHOLD, KEEP_ALL)
        slot = console.do(*command.split(), LIMIT - STEP)["slot"]
        console.do("free_async", slot)
        console.do("sync")
        assert other.ask("alloc", LIMIT // 2).code == OUT_OF_MEMORY
        console.do("trim", number(command), 0)
        assert limited.usage() == reserved(console, number(command)) == 0
        other.do("alloc", LIMIT // 2)


@each_pool
def test_what_its_own_pool_keeps_does_not_stand_in_a_program_s_way(card, allocate):
    limited = card.slice(LIMIT)
    with limited.console() as console:
        command = allocate(console)
        console.do("set_pool_attribute", number(command), RELEASE_THRESHOLD, KEEP_ALL)
        console.do("free_async", console.do(*command.split(), LIMIT - STEP)["slot"])
        console.do("sync")
        before = card.used()
        console.do("alloc", LIMIT)
        # Not beside what the pool kept, but in its place.
        assert card.used() - before <= STEP + card.slack
        assert limited.usage() == LIMIT


@each_pool
def test_memory_of_a_pool_can_be_freed_with_the_plain_call(card, allocate):
    limited = card.slice(LIMIT)
    with limited.console() as console:
        command = allocate(console)
        slot = console.do(*command.split(), 100 * MIB)["slot"]
        assert limited.usage() >= 100 * MIB
        console.do("free", slot)
        console.do("sync")
        assert limited.usage() == reserved(console, number(command))
        console.do("trim", number(command), 0)
        assert limited.usage() == 0


def test_plain_memory_can_be_freed_in_stream_order(card):
    limited = card.slice(LIMIT)
    with limited.console() as console:
        slot = console.do("alloc", LIMIT)["slot"]
        assert limited.usage() == LIMIT
        console.do("free_async", slot)
        console.do("sync")
        assert limited.usage() == 0
        console.do("alloc", LIMIT)


def test_destroying_a_pool_gives_back_what_it_had_cached(card):
    limited = card.slice(LIMIT)
    with limited.console() as console:
        pool = console.do("create_pool")["pool"]
        console.do("set_pool_attribute", pool, RELEASE_THRESHOLD, KEEP_ALL)
        slot = console.do("from_pool", pool, 200 * MIB)["slot"]
        console.do("free_async", slot)
        console.do("sync")
        assert limited.usage() >= 200 * MIB
        console.do("destroy_pool", pool)
        card.wait_until(lambda: limited.usage() == 0, "the destroyed pool's bytes are uncharged")


def test_pools_and_plain_memory_share_one_limit(card):
    limited = card.slice(LIMIT)
    with limited.console() as console:
        before = card.used()
        console.do("alloc", 200 * MIB)
        had, code = console.fill("async", STEP, LIMIT)
        grown = card.used() - before
        assert code == OUT_OF_MEMORY
        assert had <= LIMIT - 200 * MIB
        assert grown <= LIMIT + card.slack
        assert console.do("info")["free"] == LIMIT - limited.usage()


def test_a_program_whose_pools_exceed_the_limit_after_the_fact_is_refused_and_left_whole(card):
    """A pool takes more of the card than was asked for; what does not fit is taken back at once."""
    limited = card.slice(48 * MIB)
    with limited.console() as console:
        console.do("default_pool")
        console.do("alloc", 40 * MIB)
        answer = console.ask("async", 16 * MIB)
        assert answer.code == OUT_OF_MEMORY
        console.do("sync")
        assert limited.usage() == 40 * MIB
        console.do("alloc", 8 * MIB)


def test_a_killed_process_s_pools_come_back(card):
    limited = card.slice(LIMIT)
    with limited.console() as survivor:
        with limited.console() as victim:
            victim.do("default_pool")
            victim.do("set_pool_attribute", DEFAULT_POOL, RELEASE_THRESHOLD, KEEP_ALL)
            victim.do("free_async", victim.do("async", LIMIT - STEP)["slot"])
            victim.do("sync")
            assert survivor.ask("alloc", GIB // 4).code == OUT_OF_MEMORY
            victim.kill()
        card.wait_until(lambda: survivor.ask("alloc", LIMIT).code == 0, "the limit is free again")
