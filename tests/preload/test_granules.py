"""The driver takes large requests in whole granules, and the rest counts as its own memory.

The stub's h200-coarse takes requests of more than 1 MiB in multiples of 2 MiB. The ledger counts
what it takes beyond the requested bytes as `rounding`.
"""

import pytest

from hami_py._native import Account
from support import slices
from support.console import OUT_OF_MEMORY
from support.memory_use import driver_memory, held, wait_for_use
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
    assert driver_memory(coarse, script.slice, "rounding") == beyond
    kind = command.partition(" ")[0]
    script.do({"array": "array_free a", "mipmap": "mipmap_free a"}.get(kind, "free a"))
    assert driver_memory(coarse, script.slice, "rounding") == 0
    assert held(coarse) == {}


def test_the_driver_s_part_ends_with_the_context_and_with_the_process(coarse, start, slice_of):
    script = start(coarse, slice_of(coarse))
    script.do("alloc a 3M", "context c 0", "alloc b 3M", "array d 3072 1024")
    assert driver_memory(coarse, script.slice, "rounding") == 3 * MIB
    script.do("destroy c")
    assert driver_memory(coarse, script.slice, "rounding") == MIB
    script.kill()
    wait_for_use(coarse, script.slice, 0)


def test_a_request_that_the_driver_refuses_leaves_nothing(coarse, start, slice_of):
    script = start(coarse, slice_of(coarse))
    coarse.control({"command": "oom", "card": 0, "nth": 1})
    assert script("alloc a 1M") == OUT_OF_MEMORY
    assert driver_memory(coarse, script.slice, "rounding") == 0


def test_each_card_has_its_own_granule(coarse, start, tmp_path):
    """A card without one is exact, as far as the slice knows."""
    uuids = coarse.uuids()
    exact = slices.make(tmp_path / "exact", dict.fromkeys(uuids, GIB))
    script = start(coarse, exact)
    script.do("alloc a 1M")
    (process,) = Account.open(script.slice / "account").snapshot().processes
    assert (process.memory[0], process.driver_memory[0]) == (MIB, 0)
