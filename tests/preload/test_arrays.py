"""Arrays are charged the bytes of their elements, and they end like all memory of their context."""

import pytest

from support.console import OUT_OF_MEMORY
from support.memory_use import accounted, agreed, refusals, wait_for_use
from support.slices import GIB, KIB, MIB

#: A command, the command that frees, and its bytes.
SHAPES = {
    "array a 1000": 1000,
    "array a 1000 30 4 4": 1000 * 30 * 16,
    "array_v1 a 1000 30 2 2": 1000 * 30 * 4,
    "array3d a 100 20 7 0 4 4": 100 * 20 * 7 * 16,
    "array3d_v1 a 100 20 7 0 1 2": 100 * 20 * 7 * 2,
    "array3d a 100 0 7 1": 100 * 7,
    "array3d a 64 64 6 4": 64 * 64 * 6,
    "array3d a 64 64 12 5 1 4": 64 * 64 * 12 * 4,
    "mipmap a 1024 512 0 1 0 4": 1024 * 512 * 4,
    "mipmap a 8 4 0 4": 32 + 8 + 2 + 1,
    "mipmap a 8 4 2 4": 64 + 8 + 2 + 1,
    "mipmap a 8 4 3 2 1": 96 + 24,
}


def free(command):
    """The command that frees what `command` creates."""
    return "mipmap_free a" if command.startswith("mipmap") else "array_free a"


def units(bytes):
    """In whole units of the account."""
    return -(-bytes // 512) * 512


@pytest.mark.parametrize(("command", "bytes"), SHAPES.items())
def test_an_array_is_charged_the_bytes_of_its_elements(gpu, start, command, bytes):
    script = start(gpu, MIB * 64)
    script.do(command)
    assert gpu.held() == bytes
    assert sum(accounted(script.slice).values()) == units(bytes)
    script.do(free(command))
    assert agreed(gpu, script.slice) == 0


def test_arrays_fill_the_limit_and_one_more_never_reaches_the_driver(gpu, start):
    script = start(gpu, 256 * MIB)
    for round in range(3):
        for number in range(64):
            script.do(f"array a{number} 1024 1024 4")
        assert agreed(gpu, script.slice) == 256 * MIB
        calls = gpu.calls()["cuArrayCreate_v2"]
        assert script("array b 512 1") == OUT_OF_MEMORY
        assert script("array3d b 512 1 2") == OUT_OF_MEMORY
        assert script("mipmap b 512 512 0 4") == OUT_OF_MEMORY
        assert gpu.calls()["cuArrayCreate_v2"] == calls
        assert gpu.calls()["cuArray3DCreate_v2"] == 0
        assert gpu.calls()["cuMipmappedArrayCreate"] == 0
        assert refusals(script.slice) == 3 * (round + 1)
        for number in range(64):
            script.do(f"array_free a{number}")
        assert agreed(gpu, script.slice) == 0
    assert gpu.peak() == 256 * MIB


def test_an_array_and_linear_memory_share_the_limit(gpu, start):
    script = start(gpu, GIB)
    script.do("alloc p 900M")
    assert script("array a 16384 8192") == OUT_OF_MEMORY
    script.do("free p", "array a 16384 8192")
    assert agreed(gpu, script.slice) == 128 * MIB
    assert script.value("info", "free") == GIB - 128 * MIB


def test_arrays_end_with_their_context(gpu, start):
    script = start(gpu, GIB)
    script.do("array a 1024 1024", "context c 0", "array b 2048 1024", "mipmap m 1024 512 0 1")
    assert agreed(gpu, script.slice) == 3 * MIB + 512 * KIB
    script.do("destroy c")
    assert agreed(gpu, script.slice) == MIB
    script.do("reset 0")
    assert agreed(gpu, script.slice) == 0


def test_an_array_is_charged_on_the_card_of_the_current_context(stub_server, start):
    gpu = stub_server("a100,a100")
    script = start(gpu, GIB)
    script.do("device 1", "array a 1024 1024", "device 0", "array b 1024 512", "array_free a")
    assert [agreed(gpu, script.slice, card) for card in range(2)] == [512 * KIB, 0]


def test_arrays_of_a_killed_process_come_back(gpu, start):
    script = start(gpu, GIB)
    script.do("array a 8192 8192 4")
    script.kill()
    wait_for_use(gpu, script.slice, 0)


def test_below_the_limit_arrays_make_no_difference(trace_pair):
    script = ["init", "device 0"]
    for command in SHAPES:
        script += [command, free(command), free(command)]
    script += ["array a 0", "array a 1 1 3", "array3d a 999999999 1 1", "array3d a 8 8 7 4"]
    script += ["mipmap m 64 64 0 99", "mipmap m 64 64 0 3", "level l m 1", "array_free l"]
    script += ["level l m 2", "array_size l", "array a 64 64", "array_check a", "reset 0", "info"]
    bare, limited = trace_pair("console", 4 * GIB, input="\n".join(script))
    assert limited == bare
