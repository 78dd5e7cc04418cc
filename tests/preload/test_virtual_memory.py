"""Physical memory is charged until its last handle, mapping and exported descriptor are gone."""

import pytest

from support.console import OUT_OF_MEMORY, SUCCESS
from support.memory_use import (
    accounted,
    agreed,
    held_peak,
    refusals,
    see_closed_descriptors,
    wait_for_use,
)
from support.slices import GIB, MIB


def test_physical_memory_is_charged_from_its_creation(gpu, start):
    script = start(gpu, GIB)
    script.do("create h 64M")
    assert agreed(gpu, script.slice) == 64 * MIB
    script.do("reserve r 128M", "map r h", "access r 64M", "unmap r 64M")
    assert agreed(gpu, script.slice) == 64 * MIB
    script.do("release h")
    assert agreed(gpu, script.slice) == 0


def test_it_fills_the_limit_and_one_more_never_reaches_the_driver(gpu, start):
    script = start(gpu, 64 * MIB)
    for round in range(3):
        for number in range(32):
            script.do(f"create h{number} 2M")
        assert agreed(gpu, script.slice) == 64 * MIB
        calls = gpu.calls()["cuMemCreate"]
        assert script("create g 2M") == OUT_OF_MEMORY
        assert gpu.calls()["cuMemCreate"] == calls
        assert refusals(script.slice) == round + 1
        for number in range(32):
            script.do(f"release h{number}")
        assert agreed(gpu, script.slice) == 0
    assert gpu.peak() == 64 * MIB


def test_a_handle_that_is_released_while_mapped_keeps_its_memory(gpu, start):
    """HAMi-core: create, map and release in a loop held 100 GiB under 4 GiB."""
    script = start(gpu, 64 * MIB)
    script.do("reserve r 1G")
    for number in range(32):
        offset = 2 * number
        script.do("create h 2M", f"map r+{offset}M h", "release h")
    assert agreed(gpu, script.slice) == 64 * MIB
    assert script("create h 2M") == OUT_OF_MEMORY
    script.do("unmap r+20M 2M")
    assert agreed(gpu, script.slice) == 62 * MIB
    script.do("unmap r 20M", "unmap r+22M 42M")
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


def test_memory_that_is_mapped_twice_is_charged_once(gpu, start):
    script = start(gpu, GIB)
    script.do("create h 4M", "reserve r 16M", "map r h", "map r+8M h", "release h")
    assert agreed(gpu, script.slice) == 4 * MIB
    script.do("unmap r+8M 4M")
    assert agreed(gpu, script.slice) == 4 * MIB
    script.do("unmap r 4M")
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


def test_a_card_outside_the_slice_has_no_memory(stub_server, start, slice_dir):
    gpu = stub_server("a100,a100")
    script = start(gpu, slice_dir({gpu.uuids()[0]: GIB}))
    assert script("create h 2M 1") == OUT_OF_MEMORY
    assert gpu.peak(1) == 0


def test_it_outlives_every_context(gpu, start):
    script = start(gpu, GIB)
    script.do("create h 4M", "context c 0", "create g 2M", "destroy c", "reset 0")
    assert agreed(gpu, script.slice) == 6 * MIB
    script.do("release h", "release g")
    assert agreed(gpu, script.slice) == 0


def test_that_of_a_killed_process_comes_back(gpu, start):
    script = start(gpu, GIB)
    script.do("create h 64M", "reserve r 64M", "map r h", "release h")
    script.kill()
    wait_for_use(gpu, script.slice, 0)


# Exports.


def exported(script):
    """A new descriptor of memory h, as `import` takes it."""
    script.do("export h")
    values = dict(word.split("=") for word in script.outputs.split())
    return f"{values['pid']} {values['fd']}"


def test_an_open_descriptor_keeps_the_memory_and_its_charge(gpu, start):
    script = start(gpu, 64 * MIB)
    script.do("create h 32M 0 fd")
    descriptor = script.value("export h", "fd")
    script.do("release h")
    assert agreed(gpu, script.slice) == 32 * MIB
    assert script("create g 34M") == OUT_OF_MEMORY
    script.do(f"close_fd {descriptor}", "create g 64M")
    assert agreed(gpu, script.slice) == 64 * MIB


def test_a_closed_descriptor_is_forgotten(gpu, start):
    script = start(gpu, GIB)
    script.do("create h 32M 0 fd")
    descriptor = script.value("export h", "fd")
    script.do("release h", f"close_fd {descriptor}")
    see_closed_descriptors(script)
    script.do("create g 2M 0 fd", "export g")
    assert agreed(gpu, script.slice) == 2 * MIB


def test_a_loop_of_exports_does_not_pass_the_limit(gpu, start):
    script = start(gpu, 64 * MIB)
    results = []
    for _ in range(40):
        results.append(script("create h 2M 0 fd"))
        if results[-1] == SUCCESS:
            script.do("export h", "release h")
    assert results == [SUCCESS] * 32 + [OUT_OF_MEMORY] * 8


def test_memory_that_two_processes_have_is_charged_once(gpu, start):
    """It lasts as long as either process has it."""
    owner = start(gpu, GIB)
    owner.do("create h 32M 0 fd")
    other = start(gpu, owner.slice)
    other.do(f"import g {exported(owner)}", "reserve r 32M", "map r g", "release g")
    assert accounted(owner.slice) == {owner.pid: 32 * MIB}
    owner.kill()
    wait_for_use(gpu, other.slice, 32 * MIB)
    other.do("unmap r 32M")
    wait_for_use(gpu, other.slice, 0)


def test_imported_memory_that_does_not_fit_is_not_mapped(gpu, start):
    owner = start(gpu, GIB)
    owner.do("create h 32M 0 fd")
    other = start(gpu, 16 * MIB)
    other.do(f"import g {exported(owner)}", "reserve r 32M")
    assert other("map r g") == OUT_OF_MEMORY
    other.do("release g")
    assert sum(accounted(other.slice).values()) == 0


# Never in the way.


def test_below_the_limit_it_makes_no_difference(trace_pair):
    script = """
        init\ncreate h 4M\ndevice 0\ngranularity\ncreate a 3M\ncreate a 0\ncreate b 2M 7
        properties h\nreserve r 16M\nmap r h\nwrite r 5\naccess r 4M\nwrite r+2M 5\nread r+2M
        retain g r+2M\nsame_handle g h\nmap r h\nmap r+4M h\nunmap r 2M\nunmap r+4M 4M\nunreserve r
        release h\nrelease h\nrelease h\nunmap r 4M\nunmap r 4M\nunreserve r\nunreserve r\ninfo
        create h 64M host\nrelease h\ncreate h 2M 0 fd\nproperties h\nrelease h\ninfo
    """
    lines = [line.strip() for line in script.strip().splitlines()]
    bare, limited = trace_pair("console", GIB * 4, input="\n".join(lines))
    assert limited == bare


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
