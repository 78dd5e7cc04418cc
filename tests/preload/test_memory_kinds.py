"""Pitched and managed memory is charged to the byte, host memory not at all.

The ledger says what a program holds. These tests check that the account says the same.
"""

import contextlib

import pytest

from support.console import OUT_OF_MEMORY, SUCCESS
from support.memory_use import accounted, agreed, held, refusals, wait_for_use
from support.running import Started, run
from support.slices import GIB, MIB
from support.traces import value

#: A command for 256 MiB of every kind that is charged when it is asked for.
KINDS = ["alloc a 256M", "pitch a 1M 256 4", "managed a 256M 1", "managed a 256M 2"]
each_kind = pytest.mark.parametrize("command", KINDS)


def all_but(kind):
    return [command for command in KINDS if not command.startswith(kind)]


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


@pytest.mark.parametrize(("form", "free"), [("pitch", "free a"), ("pitch_v1", "free_v1 a")])
def test_freed_pitched_memory_is_available_again(gpu, start, form, free):
    script = start(gpu, GIB)
    for _ in range(3):
        assert script(f"{form} a 1M 1000 4") == SUCCESS
        assert script(f"{form} b 1M 1000 4") == OUT_OF_MEMORY
        script.do(free)
        assert agreed(gpu, script.slice) == 0
    assert gpu.peak() == 1000 * MIB


# Managed.


@pytest.mark.parametrize("flags", [1, 2])
def test_managed_memory_is_charged_in_full(gpu, start, flags):
    script = start(gpu, GIB)
    script.do(f"managed a 600M {flags}")
    assert agreed(gpu, script.slice) == 600 * MIB
    assert gpu.ledger()["cards"][0]["managed"]["now"] == 600 * MIB
    script.do("free a")
    assert agreed(gpu, script.slice) == 0


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
def test_memory_of_every_kind_is_refused_over_the_limit_and_not_charged(gpu, start, command):
    script = start(gpu, 300 * MIB)
    script.do("alloc b 100M")
    assert script(command) == OUT_OF_MEMORY
    assert agreed(gpu, script.slice) == 100 * MIB
    assert refusals(script.slice) == 1
    script.do("free b", command)
    assert agreed(gpu, script.slice) == 256 * MIB
    assert gpu.peak() == 256 * MIB


@each_kind
def test_memory_of_every_kind_reduces_the_free_memory(gpu, start, preload, probe, command):
    script = start(gpu, GIB)
    script.do(command)
    other = probe(preload(gpu, script.slice))
    assert not other.grants(769)
    assert other.grants(768)


@each_kind
def test_memory_of_every_kind_is_charged_in_every_slice_around_it(
    gpu, slice_dir, preload, program, command
):
    uuid = gpu.uuids()[0]
    outer, inner = slice_dir({uuid: 2 * GIB}), slice_dir({uuid: GIB})
    env = preload(gpu, f"{outer}:{inner}")
    with Started([program("console")], env) as script:
        for line in ["init", "device 0", command]:
            script.tell(line)
            assert " -> 0" in script.next_line()
        held = {script.pid: 256 * MIB}
        assert (accounted(outer), accounted(inner)) == (held, held)


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


@pytest.mark.parametrize("command", [*KINDS, "async a 256M -", "from_pool a 256M m -"])
def test_a_card_without_a_row_refuses_memory_of_every_kind(stub_server, start, slice_dir, command):
    gpu = stub_server("a100,a100")
    script = start(gpu, slice_dir({gpu.uuids()[0]: GIB}))
    script.do("device 1", "pool m 1")
    assert script(command) == OUT_OF_MEMORY
    script.do("device 0", "alloc b 256M")
    assert gpu.peak(1) == 0
    assert agreed(gpu, script.slice) == 256 * MIB


@pytest.mark.parametrize("command", [*KINDS, "async a 256M -", "from_pool a 256M m -"])
def test_without_a_limit_memory_of_every_kind_is_counted_all_the_same(
    gpu, start, slice_dir, command
):
    script = start(gpu, slice_dir({gpu.uuids()[0]: None}))
    script.do("pool m 0", command)
    assert agreed(gpu, script.slice) == 256 * MIB
    script.do("free a", "sync_context")
    assert agreed(gpu, script.slice) == 0


@each_kind
def test_a_destroyed_context_releases_memory_of_every_kind(gpu, start, command):
    script = start(gpu, GIB)
    script.do("alloc k 128M", "context c 0", command, command.replace(" a ", " b "))
    assert agreed(gpu, script.slice) == (128 + 512) * MIB
    script.do("destroy c")
    assert agreed(gpu, script.slice) == 128 * MIB


@each_kind
@pytest.mark.parametrize("end", ["reset 0", "release 0"])
def test_the_end_of_the_primary_context_releases_memory_of_every_kind(gpu, start, command, end):
    script = start(gpu, GIB)
    script.do(command, "context c 0", "alloc k 128M", end)
    assert agreed(gpu, script.slice) == 128 * MIB


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


@each_kind
def test_a_killed_process_releases_memory_of_every_kind(gpu, start, command):
    script = start(gpu, GIB)
    script.do(command)
    script.kill()
    wait_for_use(gpu, script.slice, 0)


@each_kind
def test_memory_that_another_thread_allocates_and_frees(gpu, start, command):
    script = start(gpu, GIB)
    script.do(f"thread {command}")
    assert agreed(gpu, script.slice) == 256 * MIB
    script.do("thread free a")
    assert agreed(gpu, script.slice) == 0


def test_threads_with_every_kind_get_all_that_fits(gpu, program, slice_env):
    env = slice_env(gpu, GIB)
    with Started([program("kinds_threads"), "128"], env) as threads:
        assert threads.next_line() == "granted 3200"
        assert accounted(env["HAMI_SLICE"]) == held(gpu) == {}
    assert gpu.peak() <= GIB


def test_processes_with_every_kind_never_pass_the_limit(gpu, program, slice_env):
    env = slice_env(gpu, GIB)
    with contextlib.ExitStack() as stack:
        command = [program("kinds_threads"), "128", "greedy"]
        racers = [stack.enter_context(Started(command, env)) for _ in range(4)]
        for racer in racers:
            assert int(racer.next_line().removeprefix("granted ")) > 0
        assert accounted(env["HAMI_SLICE"]) == held(gpu) == {}
    assert gpu.peak() <= GIB


@pytest.mark.parametrize("kind", ["pitch", "managed", "async", "pool"])
def test_of_concurrent_requests_exactly_as_many_as_fit_are_granted(gpu, program, slice_env, kind):
    done = run([program("last_place_of_kind"), kind, "1024", "300"], slice_env(gpu, GIB))
    assert done.lines == ["4 granted in every round"]
    assert gpu.peak() <= GIB


# Host memory.


@pytest.mark.parametrize("flags", [0, 1, 2, 4, 7])
@pytest.mark.parametrize(("make", "end"), [("host", "free_host"), ("register", "unregister")])
def test_host_memory_is_never_charged(gpu, start, make, end, flags):
    script = start(gpu, MIB)
    flags = flags & 3 if make == "register" else flags
    script.do(f"{make} h 64M {flags}", "on_device h")
    assert "same=1" in script.outputs
    assert agreed(gpu, script.slice) == 0
    script.do("alloc a 1M", f"{end} h")
    assert agreed(gpu, script.slice) == MIB
    assert refusals(script.slice) == 0


def test_plain_host_memory_is_never_charged(gpu, start):
    script = start(gpu, MIB)
    script.do("host_plain h 64M", "on_device h")
    assert agreed(gpu, script.slice) == 0
    script.do("free_host h")
    assert agreed(gpu, script.slice) == 0


# Never in the way.


def test_every_attribute_of_every_pointer_is_the_driver_s(trace_pair):
    script = """
        init\ndevice 0\nstream s
        alloc a 3M\nattributes a\npitch b 1000 50 8\nattributes b
        managed c 5M 1\nattributes c\nmanaged d 5M 2\nattributes d
        host h 64K 0\non_device h\nattributes h\nhost i 64K 4\non_device i\nattributes i
        register j 64K 0\non_device j\nattributes j
        async e 3M s\nattributes e\npool m 0\nfrom_pool f 3M m s\nattributes f
        free a\nattributes a\nattributes z
        context k 0\nalloc l 1M\nattributes l\ndestroy k\nattributes l
    """
    lines = [line.strip() for line in script.strip().splitlines()]
    bare, limited = trace_pair("console", GIB, input="\n".join(lines))
    assert sum(line.startswith("attributes") and " -> 0" in line for line in bare) == 13
    assert limited == bare


@pytest.mark.parametrize("stage", ["loaded", "initialised", "ready"])
@pytest.mark.parametrize("limit", [4 * GIB, None])
def test_the_driver_s_refusals_keep_their_error_text(trace_pair, stage, limit):
    bare, limited = trace_pair("odd_memory", limit, stage)
    assert limited == bare


def test_below_the_limit_no_kind_makes_a_difference(trace_pair):
    script = ["init", "device 0", "context c 0"]
    for command in KINDS:
        script += [command, "free a", command, "free_async a -", command]
    script += ["destroy c", "free a", "device 0", "pitch_v1 b 1000 7 16", "free_v1 b", "info"]
    bare, limited = trace_pair("console", 4 * GIB, input="\n".join(script))
    assert limited == bare


@pytest.mark.parametrize("command", ["managed a 2G 0", "managed a 2G 7", "pitch a 1M 2048 5"])
def test_invalid_calls_over_the_limit_are_not_out_of_memory(trace_pair, command):
    bare, limited = trace_pair("console", GIB, input=f"init\ndevice 0\n{command}\n")
    assert bare[-3].startswith(f"{command} -> 1 ")
    assert limited == bare
