"""Memory that processes share by handles is charged once: to its owner, while anyone has it."""

import pytest

from support.console import OUT_OF_MEMORY, SUCCESS
from support.memory_use import accounted, agreed, held, wait_for_use
from support.slices import MIB


def total(script):
    """Bytes that the account has, of all processes."""
    return sum(accounted(script.slice).values())


@pytest.fixture
def pair(gpu, start):
    """An owner of 32 MiB, and a process that has opened them, in a slice of 64 MiB."""
    owner = start(gpu, 64 * MIB)
    owner.do("alloc a 32M", "ipc_handle a")
    handle = owner.outputs.split()[-1]
    other = start(gpu, owner.slice)
    other.do(f"ipc_open b {handle}")
    return owner, other, handle


def test_the_owner_is_charged_and_the_importer_is_not(gpu, pair):
    owner, other, handle = pair
    assert accounted(owner.slice) == held(gpu) == {owner.pid: 32 * MIB}
    other.do(f"ipc_open b {handle}", "ipc_close b")
    assert agreed(gpu, owner.slice) == 32 * MIB
    other.do("ipc_close b")
    assert agreed(gpu, owner.slice) == 32 * MIB
    owner.do("free a")
    assert agreed(gpu, owner.slice) == 0


def test_memory_that_its_owner_frees_is_charged_while_another_process_has_it(gpu, pair):
    owner, other, _ = pair
    owner.do("free a")
    assert total(owner) == gpu.held() == 32 * MIB
    assert owner("alloc c 33M") == OUT_OF_MEMORY
    other.do("ipc_close b")
    assert total(owner) == gpu.held() == 0
    assert owner("alloc c 64M") == SUCCESS
    assert gpu.peak() == 64 * MIB


def test_memory_of_a_dead_owner_is_charged_while_another_process_has_it(gpu, pair):
    owner, other, _ = pair
    owner.do("alloc d 16M")
    owner.kill()
    other.do("any alloc c 48M")
    gpu.wait_until(lambda gpu: gpu.held() == 32 * MIB)
    assert other("alloc c 33M") == OUT_OF_MEMORY
    other.do("alloc c 32M", "free c")
    assert total(other) == gpu.held() == 32 * MIB
    other.do("ipc_close b")
    wait_for_use(gpu, other.slice, 0)
    assert other("alloc c 64M") == SUCCESS


def test_a_dead_importer_has_nothing_any_more(gpu, pair):
    owner, other, _ = pair
    owner.do("free a")
    other.kill()
    gpu.wait_until(lambda gpu: gpu.held() == 0)
    assert owner("alloc c 64M") == SUCCESS


def test_an_import_ends_with_its_context(gpu, start, pair):
    owner, other, handle = pair
    other.do("ipc_close b", "context c 0", f"ipc_open b {handle}")
    owner.do("free a")
    assert total(owner) == 32 * MIB
    other.do("destroy c")
    assert total(owner) == gpu.held() == 0


def test_exported_memory_that_ends_with_its_context_is_charged_while_imported(gpu, pair):
    owner, other, _ = pair
    owner.do("reset 0")
    assert total(owner) == gpu.held() == 32 * MIB
    other.do("ipc_close b")
    assert total(owner) == gpu.held() == 0
