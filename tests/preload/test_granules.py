"""The driver takes large requests in whole granules, and the rest counts as its own memory.

The stub's h200-coarse takes requests of more than 1 MiB in multiples of 2 MiB. The ledger counts
what it takes beyond the requested bytes as `rounding`.
"""

import pytest

from hami_py._native import Account
from support import slices
from support.console import OUT_OF_MEMORY, SUCCESS
from support.memory_use import held, wait_for_use
from support.slices import GIB, KIB, MIB

GRANULE = 2 * MIB


@pytest.fixture
def coarse(stub_server):
    return stub_server("h200-coarse,h200-coarse")


@pytest.fixture
def slice_of(tmp_path):
    """`slice_of(gpu, limit)`: a slice that knows the granule."""

    def make(gpu, limit=64 * MIB):
        limits = dict.fromkeys(gpu.uuids(), limit)
        return slices.make(tmp_path / "coarse", limits, granule=GRANULE)

    return make


def rounding(gpu, slice_path, card=0):
    """The driver's part by our account, which must be the ledger's; the rest is requested."""
    (process,) = Account.open(slice_path / "account").snapshot().processes
    driver = process.driver_memory[card]
    assert driver == gpu.booked("rounding", card)
    assert process.memory[card] - driver == sum(held(gpu, card).values())
    return driver


@pytest.mark.parametrize(
    ("command", "beyond"),
    [
        (f"alloc a {MIB - 512}", 0),
        ("alloc a 1M", 0),
        (f"alloc a {MIB + 512}", MIB - 512),
        ("alloc a 2M", 0),
        ("alloc a 33M", MIB),
        ("pitch a 512 2049 4", MIB - 512),
        ("array a 1024 1024", 0),
        ("array a 1024 1025", MIB - KIB),
        ("mipmap a 1024 1024 0 2", 768 * KIB),
        ("managed a 33M 1", 0),
    ],
)
def test_what_the_driver_takes_beyond_a_request_is_driver_memory(
    coarse, start, slice_of, command, beyond
):
    script = start(coarse, slice_of(coarse))
    script.do(command)
    assert rounding(coarse, script.slice) == beyond
    kind = command.partition(" ")[0]
    script.do({"array": "array_free a", "mipmap": "mipmap_free a"}.get(kind, "free a"))
    assert rounding(coarse, script.slice) == 0
    assert held(coarse) == {}


def test_requests_just_over_a_half_granule_fill_the_limit_and_no_more(coarse, start, slice_of):
    """Without the rounding, such requests hold twice the limit."""
    script = start(coarse, slice_of(coarse))
    for number in range(32):
        script.do(f"alloc a{number} {MIB + 1}")
    assert script(f"alloc b {MIB + 1}") == OUT_OF_MEMORY
    assert script("alloc b 512") == OUT_OF_MEMORY
    assert script.value("info", "free") == 0
    used = coarse.ledger()["cards"][0]["occupied"]["peak"] - coarse.booked("context")
    assert used == 64 * MIB
    script.do("free a7")
    assert script(f"alloc b {MIB + 1}") == SUCCESS


def test_the_driver_s_part_ends_with_the_context_and_with_the_process(coarse, start, slice_of):
    script = start(coarse, slice_of(coarse))
    script.do("alloc a 3M", "context c 0", "alloc b 3M", "array d 3072 1024")
    assert rounding(coarse, script.slice) == 3 * MIB
    script.do("destroy c")
    assert rounding(coarse, script.slice) == MIB
    script.kill()
    wait_for_use(coarse, script.slice, 0)


def test_a_request_that_the_driver_refuses_leaves_nothing(coarse, start, slice_of):
    script = start(coarse, slice_of(coarse))
    coarse.control({"command": "oom", "card": 0, "nth": 1})
    assert script("alloc a 1M") == OUT_OF_MEMORY
    assert rounding(coarse, script.slice) == 0


def test_each_card_has_its_own_granule(coarse, start, tmp_path):
    """A card without one is exact, as far as the slice knows."""
    uuids = coarse.uuids()
    exact = slices.make(tmp_path / "exact", dict.fromkeys(uuids, GIB))
    script = start(coarse, exact)
    script.do("alloc a 1M")
    (process,) = Account.open(script.slice / "account").snapshot().processes
    assert (process.memory[0], process.driver_memory[0]) == (MIB, 0)
