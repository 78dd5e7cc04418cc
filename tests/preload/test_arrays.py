"""Arrays are charged the bytes of their elements, and they end like all memory of their context."""

import pytest

from support.memory_use import accounted, agreed
from support.slices import MIB

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
