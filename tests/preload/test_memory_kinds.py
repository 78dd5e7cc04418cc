"""Pitched and managed memory is charged to the byte, on its card, and in every race.

The ledger says what a program holds. These tests check that the account says the same.
"""

import pytest

from support.console import OUT_OF_MEMORY, SUCCESS
from support.memory_use import accounted, agreed, held, refusals
from support.running import Started
from support.slices import GIB, MIB
from support.traces import value

#: A command for 256 MiB of every kind that is charged when it is asked for.
KINDS = ["alloc a 256M", "pitch a 1M 256 4", "managed a 256M 1", "managed a 256M 2"]
each_kind = pytest.mark.parametrize("command", KINDS)

FROM_POOLS = ["async a 256M -", "from_pool a 256M m -"]


# Pitched.


@pytest.mark.parametrize("form", ["pitch", "pitch_v1"])
@pytest.mark.parametrize("width", [1, 511, 512, 1000, 4097, 3 * MIB + 1])
@pytest.mark.parametrize("element", [4, 16])
def test_pitched_memory_is_charged_with_its_padding(gpu, start, form, width, element):
    script = start(gpu, GIB)
    script.do(f"{form} a {width} 100 {element}")
    pitch = value(script.outputs, "pitch")
    assert pitch >= width
    assert agreed(gpu, script.slice) == pitch * 100


@pytest.mark.parametrize("form", ["pitch", "pitch_v1"])
@pytest.mark.parametrize("width", [1, 1000, 65536])
def test_pitched_memory_is_granted_up_to_the_last_row_that_fits(gpu, start, form, width):
    """Padding counts: rows of one byte take a whole pitch each."""
    script = start(gpu, 512 * MIB)
    script.do(f"{form} a {width} 1 4")
    pitch = value(script.outputs, "pitch")
    script.do("free a" if form == "pitch" else "free_v1 a")
    rows = 512 * MIB // pitch
    assert script(f"{form} a {width} {rows + 1} 4") == OUT_OF_MEMORY
    assert agreed(gpu, script.slice) == 0
    assert script(f"{form} a {width} {rows} 4") == SUCCESS
    assert agreed(gpu, script.slice) == rows * pitch
    assert gpu.peak() <= 512 * MIB


# Managed.


@pytest.mark.parametrize("flags", [1, 2])
def test_managed_memory_over_the_limit_is_refused_without_the_driver(gpu, start, flags):
    script = start(gpu, GIB)
    assert script(f"managed a 1025M {flags}") == OUT_OF_MEMORY
    assert gpu.calls()["cuMemAllocManaged"] == 0
    assert refusals(script.slice) == 1
    assert agreed(gpu, script.slice) == 0
    assert script(f"managed a 1024M {flags}") == SUCCESS
    assert gpu.peak() == GIB


@pytest.mark.parametrize("limit", [100 * GIB, None])
def test_more_managed_memory_than_the_card_has_is_granted_as_without_us(trace_pair, limit):
    """It lives on the host, and the card sees a part of it at a time."""
    bare, limited = trace_pair("console", limit, input="init\ndevice 0\nmanaged a 60G 1\nfree a\n")
    assert "managed a 60G 1 -> 0 p1" in bare
    assert limited == bare


# All of them.


@each_kind
def test_memory_is_charged_on_the_card_of_the_current_context(stub_server, start, command):
    gpu = stub_server("a100,a100,a100")
    script = start(gpu, GIB)
    script.do("device 1", command, "context c 2", command.replace(" a ", " b "))
    script.do(command.replace(" a ", " d "))
    on = [agreed(gpu, script.slice, card) for card in range(3)]
    assert on == [0, 256 * MIB, 512 * MIB]
    # Freed on their own cards, whichever is current now.
    script.do("device 0", "free a", "free d")
    on = [agreed(gpu, script.slice, card) for card in range(3)]
    assert on == [0, 0, 256 * MIB]


@pytest.mark.parametrize("command", [*KINDS, *FROM_POOLS, "create a 256M 1"])
def test_a_card_without_a_row_refuses_memory_of_every_kind(stub_server, start, slice_dir, command):
    gpu = stub_server("a100,a100")
    script = start(gpu, slice_dir({gpu.uuids()[0]: GIB}))
    script.do("device 1", "pool m 1")
    assert script(command) == OUT_OF_MEMORY
    script.do("device 0", "alloc b 256M")
    assert gpu.peak(1) == 0
    assert agreed(gpu, script.slice) == 256 * MIB


@pytest.mark.parametrize("command", [*KINDS, *FROM_POOLS])
def test_without_a_limit_memory_of_every_kind_is_counted_all_the_same(
    gpu, start, slice_dir, command
):
    script = start(gpu, slice_dir({gpu.uuids()[0]: None}))
    script.do("pool m 0", command)
    assert agreed(gpu, script.slice) == 256 * MIB
    script.do("free a", "sync_context")
    assert agreed(gpu, script.slice) == 0


@each_kind
def test_a_free_on_a_stream_releases_memory_of_every_kind(gpu, start, command):
    """cuMemFreeAsync takes what cuMemAlloc and its like have made, too."""
    script = start(gpu, GIB)
    script.do("stream s", command)
    freed = script("free_async a s")
    script.do("sync s")
    assert agreed(gpu, script.slice) == (0 if freed == SUCCESS else 256 * MIB)
    assert freed == SUCCESS or not command.startswith("alloc")


@pytest.mark.parametrize(
    "command", [*KINDS, "async a 256M -", "create a 256M", "array a 8192 8192 4"]
)
def test_an_allocation_that_the_driver_refuses_is_not_charged(gpu, start, command):
    script = start(gpu, GIB)
    gpu.control({"command": "oom", "card": 0, "nth": 1})
    assert script(command) == OUT_OF_MEMORY
    assert agreed(gpu, script.slice) == 0
    assert refusals(script.slice) == 0
    script.do(command)
    assert agreed(gpu, script.slice) == 256 * MIB


def test_threads_with_every_kind_get_all_that_fits(gpu, program, slice_env):
    """tests/preload/test_mixed_races.py has the processes."""
    env = slice_env(gpu, GIB)
    with Started([program("kinds_threads"), "128"], env) as threads:
        assert threads.next_line() == "granted 3200"
        assert accounted(env["HAMI_SLICE"]) == held(gpu) == {}
    assert gpu.peak() <= GIB
