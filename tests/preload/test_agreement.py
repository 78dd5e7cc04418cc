"""While a program holds memory of any kind, every query returns the same numbers.

cuMemGetInfo in the program, NVML in both versions, and `hami_py.usage()` in another process of the
slice: total = min(limit, card), and used is the slice's own use, which the ledger knows.
"""

import json
import sys

import pytest

from support.console import OUT_OF_MEMORY
from support.memory_use import accounted, agreed, held
from support.running import run
from support.slices import GIB, MIB

GRAPH = ["graph g", "alloc_node n g 64M", "free_node f g n n", "instantiate x g"]

#: Commands that take memory, and commands that return it.
KINDS = {
    "linear": (["alloc a 64M"], ["free a"]),
    "pitched": (["pitch a 1000 65536 4"], ["free a"]),
    "managed": (["managed a 64M 1"], ["free a"]),
    "stream-ordered": (["async a 64M -", "sync -"], ["free_async a -", "sync -"]),
    "per thread": (["ptsz async a 64M -"], ["ptsz free_async a -", "ptsz sync -"]),
    "a pool": (["pool m 0", "from_pool a 64M m -"], ["free_async a -", "sync -", "trim m 0"]),
    "a pool that keeps": (
        ["pool m 0", "set m 4 1G", "from_pool a 64M m -", "free_async a -", "sync -"],
        ["trim m 0"],
    ),
    "an array": (["array a 8192 8192"], ["array_free a"]),
    "a volume": (["array3d a 512 512 256"], ["array_free a"]),
    "a mipmapped array": (["mipmap a 8192 8192 0 9"], ["mipmap_free a"]),
    "physical": (["create h 64M"], ["release h"]),
    "mapped": (["create h 64M", "reserve r 64M", "map r h", "release h"], ["unmap r 64M"]),
    "exported": (["create h 64M 0 fd", "export h"], ["close_fd {fd}", "release h"]),
    "external": (["external e 64M"], ["external_destroy e"]),
    "an external buffer": (
        ["external e 64M", "external_buffer a e", "external_destroy e"],
        ["free a"],
    ),
    "a graph": (
        [*GRAPH, "launch cuGraphLaunch x -", "sync -"],
        ["destroy_executable x", "graph_trim 0"],
    ),
    "an upload": ([*GRAPH, "upload x -", "sync -"], ["destroy_executable x", "graph_trim 0"]),
    "memory of a context": (["context c 0", "alloc a 64M"], ["destroy c"]),
    "memory of a green context": (
        ["green g 16", "green_context c g", "current c", "alloc a 64M"],
        ["free a", "green_free g"],
    ),
}

ASK = """
import json, pynvml, hami_py
pynvml.nvmlInit()
card = pynvml.nvmlDeviceGetHandleByIndex(0)
first = pynvml.nvmlDeviceGetMemoryInfo(card)
second = pynvml.nvmlDeviceGetMemoryInfo(card, version=pynvml.nvmlMemory_v2)
ours = hami_py.usage().cards[0]
rows = pynvml.nvmlDeviceGetComputeRunningProcesses(card)
print(json.dumps({
    "nvml": [first.total, first.used, first.free],
    "nvml v2": [second.total, second.used, second.free],
    "usage": [ours.memory_limit, ours.memory_used, ours.memory_free],
    "nvml's processes": {str(row.pid): row.usedGpuMemory for row in rows},
    "usage's processes": {str(p.pid): p.memory_used for p in ours.processes if p.memory_used},
}))
"""


def answers(env):
    """What another process of the slice is told."""
    done = run([sys.executable, "-c", ASK], env)
    assert done.code == 0, done.err
    return dict(json.loads(done.out))


@pytest.mark.parametrize("kind", KINDS)
def test_everybody_gets_the_same_numbers(gpu, start, preload, kind):
    take, give_back = KINDS[kind]
    script = start(gpu, GIB)
    before = start(gpu, script.slice)
    before.do("alloc z 128M")
    script.do(*take)
    number = script.outputs.rpartition("fd=")[2].strip()
    used = agreed(gpu, script.slice)
    assert 192 * MIB <= used <= 224 * MIB
    told = answers(preload(gpu, script.slice))
    numbers = [GIB, used, GIB - used]
    assert (told["nvml"], told["nvml v2"], told["usage"]) == (numbers, numbers, numbers)
    rows = {str(pid): bytes for pid, bytes in held(gpu).items()}
    assert (told["nvml's processes"], told["usage's processes"]) == (rows, rows)
    for program in (script, before):
        assert program.value("info", "total") == GIB
        assert program.value("info", "free") == GIB - used
    assert script("total 0") == 0 and script.outputs == f"total={GIB}"
    assert before(f"alloc y {GIB - used + 512}") == OUT_OF_MEMORY
    before.do(f"alloc y {GIB - used}")
    script.do(*(command.format(fd=number) for command in give_back))
    before.do("free y")
    assert before.value("info", "free") == GIB - 128 * MIB
    assert agreed(gpu, script.slice) == 128 * MIB


@pytest.mark.parametrize("kind", KINDS)
def test_in_nested_slices_the_inner_one_s_numbers_count(gpu, start, slice_dir, preload, kind):
    """A program beside the inner slice leaves less free than the inner slice's limit."""
    take, _ = KINDS[kind]
    uuid = gpu.uuids()[0]
    outer, inner = slice_dir({uuid: 2 * GIB}), slice_dir({uuid: GIB})
    beside = start(gpu, outer)
    beside.do("alloc z 1280M")
    script = start(gpu, f"{outer}:{inner}")
    script.do(*take)
    used = sum(accounted(inner).values())
    assert held(gpu) == {script.pid: used, beside.pid: 1280 * MIB} == accounted(outer)
    told = answers(preload(gpu, f"{outer}:{inner}"))
    free = 768 * MIB - used
    assert told["nvml"][:2] == told["nvml v2"][:2] == told["usage"][:2] == [GIB, used]
    assert told["nvml"][2] == told["nvml v2"][2] == told["usage"][2] == free
    assert script.value("info", "free") == free
