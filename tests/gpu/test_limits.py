"""A limit holds for every way to allocate, and the numbers that a program reads agree with it.

The oracle is NVML, read by a process outside the slice, and on the stub the ledger as well. On a
real card nothing here takes more than a few GiB, and managed memory is never touched.
"""

import sys

import pytest

from gpu.card import begin, python_path
from support.console import OUT_OF_MEMORY, SUCCESS, Console
from support.slices import GIB, MIB

LIMIT = 256 * MIB
STEP = 32 * MIB

#: How one kind of memory is allocated; a pitched row of 4-byte elements fills its pitch.
KINDS = {
    "alloc": "alloc a {size}",
    "pitch": "pitch a {size} 1 4",
    "managed": "managed a {size} 1",
}

each_lookup = pytest.mark.parametrize("lookup", ["dlsym", "proc_address"])
each_kind = pytest.mark.parametrize("kind", KINDS)

TOTALS = """
import json, pynvml
pynvml.nvmlInit()
card = pynvml.nvmlDeviceGetHandleByIndex(0)
both = [pynvml.nvmlDeviceGetMemoryInfo(card),
        pynvml.nvmlDeviceGetMemoryInfo(card, version=pynvml.nvmlMemory_v2)]
print(json.dumps([[memory.total, memory.used, memory.free] for memory in both]))
"""


@each_lookup
@each_kind
def test_allocation_stops_at_the_limit(card, kind, lookup):
    limited = card.slice(LIMIT)
    with limited.console(lookup) as console:
        before = card.used()
        # Stop at twice the limit, so that a limit that does not hold never fills the card.
        had, code = console.fill(KINDS[kind], STEP, 2 * LIMIT)
        grown = card.used() - before
    assert code == OUT_OF_MEMORY
    assert had == LIMIT
    # Untouched managed memory is not on the card.
    assert grown <= LIMIT + card.slack
    if kind != "managed":
        assert grown >= had
    assert limited.refusals() == 1
    if card.stub:
        assert limited.ledger()["peak"] == LIMIT


def whole(kind):
    """The command that allocates the whole limit."""
    return f"pitch a {LIMIT // 1024} 1024 4" if kind == "pitch" else KINDS[kind].format(size=LIMIT)


@each_kind
def test_a_byte_over_the_limit_is_refused_and_the_limit_itself_is_not(card, kind):
    with card.slice(LIMIT).console() as console:
        over = LIMIT + (512 if kind == "pitch" else 1)
        assert console(KINDS[kind].format(size=over)) == OUT_OF_MEMORY
        assert console(whole(kind)) == SUCCESS


@each_kind
def test_freed_memory_can_be_allocated_again(card, kind):
    with card.slice(LIMIT).console() as console:
        for _ in range(3):
            console.do(whole(kind))
            assert console(f"alloc b {MIB}") == OUT_OF_MEMORY
            console.do("free a")
        console.do(f"alloc a {LIMIT}")


def test_pitched_memory_counts_with_its_pitch(card):
    limited = card.slice(LIMIT)
    with limited.console() as console:
        rows = 1000
        pitch = console.value(f"pitch a 1001 {rows} 4", "pitch")
        assert pitch > 1001
        # The account counts in units of 512 bytes.
        assert 0 <= limited.usage() - pitch * rows < 512


def test_every_query_returns_the_same_total_and_free_memory(card):
    limited = card.slice(LIMIT)
    with limited.console() as console:
        console.do(f"alloc a {100 * MIB}")
        assert console.value("info", "total") == console.value("total 0", "total") == LIMIT
        assert console.value("info", "free") == LIMIT - 100 * MIB
        for total, used, free in limited.python(TOTALS):
            assert (total, used, free) == (LIMIT, 100 * MIB, LIMIT - 100 * MIB)


def test_the_usage_is_the_memory_of_the_program(card):
    limited = card.slice(LIMIT)
    with limited.console() as console:
        console.do("alloc a 1M", "alloc b 20M", "alloc c 200M")
        assert limited.usage() == 221 * MIB
        console.do("free b")
        assert limited.usage() == 201 * MIB
    if card.stub:
        card.wait_until(lambda: limited.ledger()["now"] == 0, "the process's bytes come back")


def test_host_memory_is_not_counted(card):
    limited = card.slice(64 * MIB)
    with limited.console() as console:
        console.do(f"alloc a {64 * MIB}")
        console.do("host h 128M", "register r 128M")
        assert limited.usage() == 64 * MIB
        console.do("free_host h", "unregister r")
        assert limited.usage() == 64 * MIB


def test_memory_of_a_killed_process_can_be_allocated_again(card, note):
    limited = card.slice(LIMIT)
    with limited.console() as survivor:
        with limited.console() as victim:
            victim.do(f"alloc a {LIMIT}")
            assert survivor(f"alloc b {MIB}") == OUT_OF_MEMORY
            victim.kill()
        seconds = card.wait_until(
            lambda: survivor(f"alloc a {LIMIT}") == SUCCESS, "the limit is there for others"
        )
        note("seconds from SIGKILL until the bytes could be had again", round(seconds, 3))
        assert limited.usage() == LIMIT


def test_four_processes_share_one_limit(card):
    limited = card.slice(LIMIT)
    with (
        limited.console() as first,
        limited.console("proc_address") as second,
        limited.console() as third,
        limited.console("proc_address") as fourth,
    ):
        before = card.used()
        consoles = (first, second, third, fourth)
        had = 0
        refused = set()
        while len(refused) < len(consoles) and had <= 2 * LIMIT:
            for console in consoles:
                result = console(f"alloc a {STEP}")
                had += STEP if result == SUCCESS else 0
                if result == OUT_OF_MEMORY:
                    refused.add(console.pid)
        grown = card.used() - before
        assert had == LIMIT
        assert had <= grown <= LIMIT + 4 * card.slack
        assert limited.usage() == LIMIT
    if card.stub:
        assert limited.ledger()["peak"] == LIMIT


def test_two_slices_do_not_count_against_each_other(card):
    with card.slice(LIMIT).console() as one, card.slice(LIMIT // 2).console() as other:
        assert one.fill(KINDS["alloc"], STEP, 2 * LIMIT) == (LIMIT, OUT_OF_MEMORY)
        assert other.fill(KINDS["alloc"], STEP, 2 * LIMIT) == (LIMIT // 2, OUT_OF_MEMORY)


def test_a_full_card_is_the_driver_s_error_and_not_our_refusal(card):
    """Two slices, each with the whole card as its limit; one requests what the other holds."""
    total = card.observe()["total"]
    limited = card.slice(total)
    with card.slice(total).console() as neighbour, limited.console() as console:
        neighbour.do(f"alloc a {2 * GIB}")
        asked = total - GIB
        # One request, refused as a whole: the card is never filled.
        assert console(f"alloc b {asked}") == OUT_OF_MEMORY
        assert limited.refusals() == 0
        assert limited.usage() == 0
        console.do(f"alloc a {STEP}")
        assert limited.usage() == STEP


def test_two_slices_that_are_more_than_the_card_together_fill_it(card_kind, cards):
    """On a small stub card alone: a real one is never filled."""
    if card_kind == "gpu":
        pytest.skip("it would fill the card")
    card = cards(1)
    total = card.observe()["total"]
    limit = total * 3 // 4
    first, second = card.slice(limit), card.slice(limit)
    with first.console() as one, second.console() as other:
        had_one, code = one.fill(KINDS["alloc"], GIB, total)
        assert code == OUT_OF_MEMORY
        had_other, code = other.fill(KINDS["alloc"], GIB, total)
        assert code == OUT_OF_MEMORY
        assert had_one + had_other > total - 3 * GIB
        assert (first.refusals(), second.refusals()) == (1, 0)


def test_a_limit_through_the_command_line_holds(card, programs):
    """End to end: `hami run` finds the card and creates the slice, and the limit holds."""
    command = (sys.executable, "-m", "hami_py", "run", "--gpumem", "256MiB", "--")
    env = {**card.env, **python_path()}
    env |= {"HAMI_RUNTIME_DIR": str(card.folder), "HAMI_LIBRARY": str(card.library)}
    # A context alone takes more than this limit on most cards; test_driver_memory.py has that.
    env |= {"HAMI_CONTEXT_MEMORY": "0", "HAMI_GRANULE": "0"}
    with Console(programs("console"), env, prefix=command) as console:
        begin(console)
        assert console.fill(KINDS["alloc"], STEP, GIB) == (256 * MIB, OUT_OF_MEMORY)
