"""Arrays stop at the limit. The oracle is NVML, read by a process outside the slice."""

import pytest

from support.console import OUT_OF_MEMORY
from support.slices import MIB

LIMIT = 256 * MIB
COUNT = 32

#: The commands that create the array `{}` of 8 MiB, and free it.
KINDS = {
    "plane": ("array {} 1024 2048 4", "array_free {}"),
    "solid": ("array3d {} 128 128 128 0 4", "array_free {}"),
    "layered": ("array3d {} 1024 512 4 1 4", "array_free {}"),
    "mipmapped": ("mipmap {} 1024 2048 0 1 0 4", "mipmap_free {}"),
}

each_lookup = pytest.mark.parametrize("lookup", ["dlsym", "proc_address"])


@each_lookup
@pytest.mark.parametrize("kind", KINDS)
def test_arrays_fill_the_limit_and_no_more(card, kind, lookup):
    create, free = KINDS[kind]
    limited = card.slice(LIMIT)
    with limited.console(lookup) as console:
        before = card.used()
        for round in range(2):
            console.do(*(create.format(f"a{number}") for number in range(COUNT)))
            for command, _ in KINDS.values():
                assert console(command.format("b")) == OUT_OF_MEMORY
            assert limited.refusals() == len(KINDS) * (round + 1)
            assert limited.charged() == LIMIT
            assert console.value("info", "free") == 0
            assert LIMIT <= card.used() - before <= LIMIT + card.slack
            console.do(*(free.format(f"a{number}") for number in range(COUNT)))
            assert limited.charged() == 0
    if card.stub:
        assert limited.ledger()["peak"] == LIMIT


def test_small_arrays_are_charged_what_they_take(card, note):
    """The driver may take more for an array than its elements; a slice knows the granule alone."""
    limited = card.slice(LIMIT, granule=2 * MIB)
    with limited.console() as console:
        before = card.used()
        console.do(*(f"array a{number} 1024 1025" for number in range(64)))
        grown, usage = card.used() - before, limited.charged()
        note("bytes of 64 arrays of 1025 KiB: NVML, charged", [grown, usage])
        assert grown <= usage + card.slack
        assert usage <= LIMIT


def test_an_array_works_under_a_limit(card):
    with card.slice(LIMIT).console() as console:
        console.do("array3d a 64 64 32 0 4 4", "array_check a")
        assert "same=1" in console.outputs
        console.do("mipmap m 512 512 0 4 0 4", "level l m 2", "array_check l")
        assert "same=1" in console.outputs
