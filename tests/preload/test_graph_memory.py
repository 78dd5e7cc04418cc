"""Graph memory is charged at uploads and launches, and follows what the driver reserves."""

import pytest

from support.console import OUT_OF_MEMORY
from support.memory_use import agreed, wait_for_use
from support.slices import MIB

LAUNCH = "launch cuGraphLaunch"


def graph(name, bytes, *, flags=0, freed=True):
    """Commands that build the executable graph `name`, which allocates `name` and may free it."""
    node = name.upper()
    free = [f"free_node {node}1 {node} {name} {name}"] if freed else []
    return [
        f"graph {node}",
        f"alloc_node {name} {node} {bytes}",
        *free,
        f"instantiate {name} {node} {flags}",
    ]


@pytest.fixture
def script(gpu, start):
    script = start(gpu, 64 * MIB)
    script.do("stream s", "stream t")
    return script


def test_an_upload_takes_the_memory_and_the_launch_no_more(gpu, script):
    script.do(*graph("e", "32M"), "upload e s")
    assert agreed(gpu, script.slice) == 32 * MIB
    script.do(f"{LAUNCH} e s")
    assert agreed(gpu, script.slice) == 32 * MIB


def test_a_graph_waits_for_memory_of_the_one_before_it_on_its_stream(gpu, script):
    """Without a limit the driver moves the memory; beside a running graph it would refuse, too."""
    gpu.control({"command": "kernels", "kernels": {"work": 20000}})
    script.do("module m", "kernel w m work")
    for name in "ef":
        node = name.upper()
        script.do(
            f"graph {node}",
            f"alloc_node {name} {node} 40M",
            f"kernel_node {node}2 {node} w {name}",
            f"free_node {node}1 {node} {name} {name} {node}2",
            f"instantiate {name} {node} 0",
        )
    for _ in range(3):
        script.do(f"{LAUNCH} e s", f"{LAUNCH} f s")
    assert script(f"{LAUNCH} e t") == OUT_OF_MEMORY
    script.do("sync_context")
    assert gpu.ledger()["cards"][0]["held"]["peak"] <= 64 * MIB


@pytest.fixture
def waiting(gpu, script):
    """`waiting(e)` launches a graph that waits for room in its stream for ten minutes.

    The driver takes the memory of the graph, 32 MiB, before it waits.
    """

    def launch(name):
        node = name.upper()
        gpu.control({"command": "kernels", "kernels": {"hold": 600_000_000}})
        script.do("module m", "kernel h m hold")
        script.do(
            f"graph {node}",
            f"alloc_node {name} {node} 32M",
            f"kernel_node {node}1 {node} h {name}",
            f"free_node {node}2 {node} {name} {name} {node}1",
            f"instantiate {name} {node} 0",
            "on waits info",
        )
        before = gpu.booked("graphs")
        script.do("launch cuLaunchKernel h s 1 1024", f"start waits {LAUNCH} {name} s")
        gpu.wait_until(lambda gpu: gpu.booked("graphs") == before + 32 * MIB)

    return launch


def test_a_launch_that_waits_in_the_driver_refuses_no_other_one(gpu, script, waiting):
    waiting("e")
    script.do(*graph("f", "32M"), f"{LAUNCH} f t")
    assert agreed(gpu, script.slice) == 64 * MIB


def test_memory_of_a_launch_that_waits_is_not_another_graph_s(gpu, script, waiting):
    """The other graph had as much until a trim; both have room only one after the other."""
    script.do(*graph("o", "4M", freed=False), f"{LAUNCH} o t")
    script.do(*graph("f", "32M"), f"{LAUNCH} f t", "sync t", "graph_trim 0")
    waiting("e")
    assert script(f"{LAUNCH} f t") == OUT_OF_MEMORY
    assert agreed(gpu, script.slice) == 36 * MIB


def test_unused_pool_memory_makes_room_for_a_graph(gpu, script):
    script.do("default_pool p 0", "set p 4 1G", "async a 40M s", "free_async a s", "sync s")
    script.do(*graph("e", "40M"), f"{LAUNCH} e s")
    assert agreed(gpu, script.slice) == 40 * MIB


def test_graph_memory_is_charged_on_the_device_of_its_node(stub_server, start):
    gpu = stub_server("a100,a100")
    script = start(gpu, 64 * MIB)
    script.do("stream s", "graph g", "alloc_node_on 1 n g 32M", "free_node f g n n")
    script.do("alloc_node_on 0 m g 16M", "free_node k g m m", "instantiate e g", f"{LAUNCH} e s")
    assert [agreed(gpu, script.slice, card) for card in range(2)] == [16 * MIB, 32 * MIB]


def test_graph_memory_ends_with_the_primary_context_and_the_process(gpu, script):
    script.do(*graph("e", "32M"), f"{LAUNCH} e s", "reset 0")
    assert agreed(gpu, script.slice) == 0
    script.do("device 0", "stream s", *graph("f", "32M"), f"{LAUNCH} f s")
    assert agreed(gpu, script.slice) == 32 * MIB
    script.kill()
    wait_for_use(gpu, script.slice, 0)
