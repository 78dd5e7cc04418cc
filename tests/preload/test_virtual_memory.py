"""Physical memory is charged until its last handle, mapping and exported descriptor are gone."""

import pytest

from support.console import OUT_OF_MEMORY, SUCCESS
from support.memory_use import agreed, held_peak
from support.slices import GIB, MIB


def test_physical_memory_is_charged_from_its_creation(gpu, start):
    script = start(gpu, GIB)
    script.do("create h 64M")
    assert agreed(gpu, script.slice) == 64 * MIB
    script.do("reserve r 128M", "map r h", "access r 64M", "unmap r 64M")
    assert agreed(gpu, script.slice) == 64 * MIB
    script.do("release h")
    assert agreed(gpu, script.slice) == 0


def test_a_query_of_the_handle_does_not_release_the_memory(gpu, start):
    """HAMi-core: cuMemRetainAllocationHandle and a release un-counted memory in use."""
    script = start(gpu, GIB)
    script.do("create h 4M", "reserve r 8M", "map r h", "release h")
    for _ in range(3):
        script.do("retain g r+2M", "release g")
        assert agreed(gpu, script.slice) == 4 * MIB
    script.do("retain g r", "unmap r 4M")
    assert agreed(gpu, script.slice) == 4 * MIB
    script.do("release g")
    assert script("release g") != SUCCESS
    assert agreed(gpu, script.slice) == 0


@pytest.mark.parametrize(
    "command",
    ["release g", "unmap r+2M 2M", "unmap r 2M", "unmap r 8M", "map r h", "retain g r+6M"],
)
def test_a_call_that_the_driver_refuses_changes_nothing(gpu, start, command):
    script = start(gpu, GIB)
    script.do("create h 4M", "reserve r 16M", "map r h")
    assert script(command) != SUCCESS
    assert agreed(gpu, script.slice) == 4 * MIB
    script.do("unmap r 4M")
    assert agreed(gpu, script.slice) == 4 * MIB
    script.do("release h")
    assert agreed(gpu, script.slice) == 0


def test_it_outlives_every_context(gpu, start):
    script = start(gpu, GIB)
    script.do("create h 4M", "context c 0", "create g 2M", "destroy c", "reset 0")
    assert agreed(gpu, script.slice) == 6 * MIB
    script.do("release h", "release g")
    assert agreed(gpu, script.slice) == 0


#: What else keeps memory: a tile of a sparse array, or a binding to a multicast object. The
#: preparation, the call with which the reference begins, and those with which it can end.
ARRAY = "array3d s 256 256 0 64"
REFERENCES = {
    "a tile": ([ARRAY], "tile s 0 h", ["untile s 0", "array_free s"]),
    "multicast": (["multicast c 64M"], "bind c 0 h", ["unbind c 0 64M", "release c"]),
    "multicast on a device": (["multicast c 64M"], "bind_v2 c 0 h", ["unbind c 0 64M"]),
    "a mapping": (
        ["multicast c 64M", "reserve r 64M", "map r h", "access r 64M"],
        "bind_address c 0 r 64M",
        ["unbind c 0 64M"],
    ),
    "a mapping on a device": (
        ["multicast c 64M", "reserve r 64M", "map r h", "access r 64M"],
        "bind_address_v2 c 0 r 64M",
        ["release c"],
    ),
}
each_end = pytest.mark.parametrize(
    ("preparation", "begin", "end"),
    [(first, begin, end) for first, begin, ends in REFERENCES.values() for end in ends],
    ids=[f"{name}, {end}" for name, (_, _, ends) in REFERENCES.items() for end in ends],
)


@each_end
def test_memory_that_is_only_referred_to_stays_charged(stub_server, start, preparation, begin, end):
    gpu = stub_server("h200")
    script = start(gpu, 64 * MIB)
    script.do("create h 64M", *preparation, begin, "release h")
    if "map r h" in preparation:
        script.do("unmap r 64M")
    assert agreed(gpu, script.slice) == 64 * MIB
    assert script("create g 64M") == OUT_OF_MEMORY
    script.do(end)
    assert agreed(gpu, script.slice) == 0
    script.do("create g 64M")
    assert held_peak(gpu) == 64 * MIB


def test_each_tile_of_an_array_keeps_its_own_memory(gpu, start):
    script = start(gpu, GIB)
    script.do(ARRAY, "create h 2M", "create g 4M", "tile s 0 h", "tile s 64 g", "tile s 128 g")
    script.do("release h", "release g", "create f 8M")
    assert agreed(gpu, script.slice) == 14 * MIB
    # Another mapping in its place ends the first.
    script.do("tile s 0 f", "release f")
    assert agreed(gpu, script.slice) == 12 * MIB
    script.do("untile s 64")
    assert agreed(gpu, script.slice) == 12 * MIB
    script.do("untile s 128")
    assert agreed(gpu, script.slice) == 8 * MIB
    script.do("array_free s")
    assert agreed(gpu, script.slice) == 0


def test_a_binding_that_the_driver_refuses_keeps_nothing(stub_server, start):
    gpu = stub_server("h200")
    script = start(gpu, GIB)
    script.do("multicast c 64M", "create h 64M", "create g 64M", "bind c 0 h")
    assert script("bind c 0 g") != SUCCESS
    assert script("bind c 64M g") != SUCCESS
    script.do(ARRAY)
    assert script("array_free t") != SUCCESS
    assert script("tile t 0 g") != SUCCESS
    script.do("release g")
    assert agreed(gpu, script.slice) == 64 * MIB
    assert script("unbind c 64M 64M") != SUCCESS
    script.do("release h")
    assert agreed(gpu, script.slice) == 64 * MIB
    script.do("release c")
    assert agreed(gpu, script.slice) == 0
