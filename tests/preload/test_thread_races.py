"""Threads that use the same memory at once, in the ways that CUDA allows.

Afterwards, account and ledger agree, and when everything is freed nothing is left in them.
"""

import pytest

from support.console import SUCCESS
from support.memory_use import agreed, see_closed_descriptors
from support.slices import GIB, MIB

GRAPH = [
    "graph g",
    "alloc_node n g 64M",
    "free_node f g n n",
    "instantiate x g",
    "graph h",
    "alloc_node m h 32M",
    "free_node k h m m",
    "instantiate y h",
]
NO_GRAPH = ["destroy_graph g", "destroy_graph h", "any destroy_executable y"]

#: What prepares, one call for each thread, and what frees.
RACES = {
    "the last handle and the last mapping": (
        ["create h 64M", "reserve r 64M", "map r h"],
        ["release h", "unmap r 64M"],
        ["unreserve r"],
    ),
    "a reference while another one is dropped": (
        ["create h 64M", "reserve r 64M", "map r h"],
        ["retain q r", "release h"],
        ["release q", "unmap r 64M", "unreserve r"],
    ),
    "several mappings": (
        ["create h 64M", "reserve r 192M"],
        ["map r h", "map r+64M h", "map r+128M h"],
        ["release h", "unmap r 192M", "unreserve r"],
    ),
    "an export while the memory is dropped": (
        ["create h 4M 0 fd", "reserve r 4M", "map r h"],
        ["export h", "unmap r 4M"],
        ["release h", "close_fd {fd}", "unreserve r"],
    ),
    "several buffers": (
        ["external e 64M"],
        ["external_buffer a e", "external_buffer b e", "external_buffer c e"],
        ["external_destroy e", "free a", "free b", "free c"],
    ),
    "the end of external memory": (
        ["external e 64M", "external_buffer a e", "external_buffer b e"],
        ["external_destroy e", "free a", "free b"],
        [],
    ),
    "launches and trims": (
        GRAPH,
        ["launch cuGraphLaunch x - 1 3", "launch cuGraphLaunch y - 1 3", "graph_trim 0"],
        ["sync -", "destroy_executable x", "graph_trim 0", *NO_GRAPH],
    ),
    "a launch and the end of another graph": (
        [*GRAPH, "launch cuGraphLaunch y -"],
        ["launch cuGraphLaunch x - 1 5", "destroy_executable y"],
        ["sync -", "destroy_executable x", "graph_trim 0", *NO_GRAPH],
    ),
    "a free and a trim": (
        ["graph g", "alloc_node n g 64M", "instantiate x g", "launch cuGraphLaunch x -", "sync -"],
        ["free n", "graph_trim 0", "alloc a 1M"],
        ["sync -", "free a", "destroy_executable x", "graph_trim 0", "destroy_graph g"],
    ),
    "a pool that grows and shrinks": (
        ["pool m 0", "from_pool a 64M m -"],
        ["free_async a -", "trim m 0", "from_pool b 32M m -", "from_pool c 128M m -"],
        ["sync -", "free b", "free c", "sync_context", "destroy_pool m"],
    ),
    "the end of a pool": (
        ["pool m 0", "from_pool a 64M m -", "from_pool b 64M m -"],
        ["free_async a -", "destroy_pool m", "free b"],
        ["sync -", "sync_context"],
    ),
    "a change of the current pool": (
        ["pool m 0"],
        ["use_pool m", "async a 8M -", "async b 40M -", "async c 70M -"],
        [
            *("free a", "free b", "free c", "sync -", "default_pool d", "use_pool d"),
            *("trim m 0", "destroy_pool m", "trim d 0"),
        ],
    ),
    "the end of a context": (
        ["context c 0", "alloc a 1M", "array b 1024 1024", "device 0"],
        ["destroy c", "alloc d 2M", "context e 0", "array f 1024 1024"],
        ["device 0", "free d", "array_free f", "destroy e"],
    ),
}


@pytest.mark.parametrize("kind", RACES)
@pytest.mark.parametrize("rounds", [5, pytest.param(60, marks=pytest.mark.tier("torture"))])
def test_threads_that_share_memory_leave_nothing(gpu, start, kind, rounds):
    prepare, race, give_back = RACES[kind]
    script = start(gpu, GIB)
    threads = "abcd"[: len(race)]
    script.do(*(f"on {thread} device 0" for thread in threads))
    for number in range(rounds):
        script.do(*prepare)
        calls = list(zip(threads, race, strict=True))[:: -1 if number % 2 else 1]
        script.do(*(f"start {thread} {call}" for thread, call in calls))
        kept = {}
        for thread, call in calls:
            script.do(f"finish {thread}")
            if call.startswith("export"):
                kept["fd"] = script.outputs.rpartition("fd=")[2].strip()
        agreed(gpu, script.slice)
        script.do(*(command.format(**kept) for command in give_back))
        if "fd" in kept:
            see_closed_descriptors(script)
        assert agreed(gpu, script.slice) == 0, f"{number=}"


@pytest.mark.parametrize("slow", ["cuMemUnmap", "cuMemRetainAllocationHandle"])
def test_a_reference_to_memory_that_another_thread_unmaps_is_charged(gpu, start, slow):
    """Whether the driver still hands it out is the driver's to say."""
    script = start(gpu, GIB)
    script.do("on a device 0", "on b device 0")
    calls = {"a": "unmap r 64M", "b": "retain q r"}
    first, second = "ab" if slow == "cuMemUnmap" else "ba"
    for _ in range(5):
        script.do("create h 64M", "reserve r 64M", "map r h", "release h")
        before = gpu.calls()[slow]
        gpu.control({"command": "slow", "symbol": slow, "us": 100_000})
        script.do(f"start {first} {calls[first]}")
        gpu.wait_until(lambda gpu, before=before: gpu.calls()[slow] > before)
        script.do(f"start {second} {calls[second]}")
        results = {thread: script(f"finish {thread}") for thread in "ab"}
        gpu.control({"command": "slow", "symbol": slow, "us": 0})
        assert results["a"] == SUCCESS
        expected = 64 * MIB if results["b"] == SUCCESS else 0
        assert agreed(gpu, script.slice) == expected
        script.do(*(["release q"] if expected else []), "unreserve r")
        assert agreed(gpu, script.slice) == 0


def test_graphs_that_fit_together_are_never_refused(gpu, start):
    """Two threads launch one graph each, of 400 MiB, on streams of their own."""
    script = start(gpu, GIB)
    for name in "ab":
        script.do(f"graph {name}", f"alloc_node n {name} 400M", f"free_node f {name} n n")
        script.do(f"instantiate {name} {name}", f"stream {name}", f"on {name} info")
    for _ in range(300):
        script.do(*(f"start {name} launch cuGraphLaunch {name} {name}" for name in "ab"))
        script.do(*(f"finish {name}" for name in "ab"))
        script.do("sync_context", "graph_trim 0")
    assert gpu.peak() <= 800 * MIB
