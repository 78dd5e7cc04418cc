"""Graph memory is charged at uploads and launches, and follows what the driver reserves."""

import pytest

from support.console import OUT_OF_MEMORY, SUCCESS
from support.memory_use import agreed, refusals, wait_for_use
from support.slices import GIB, MIB

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


def test_only_a_launch_takes_memory(gpu, script):
    script.do(*graph("e", "32M"))
    assert agreed(gpu, script.slice) == 0
    for _ in range(3):
        script.do(f"{LAUNCH} e s")
        assert agreed(gpu, script.slice) == 32 * MIB
    script.do("sync s")
    assert agreed(gpu, script.slice) == 32 * MIB, "the pool keeps it"
    script.do("graph_trim 0")
    assert agreed(gpu, script.slice) == 0
    script.do(f"{LAUNCH} e s")
    assert agreed(gpu, script.slice) == 32 * MIB


@pytest.mark.parametrize("command", [f"{LAUNCH} e s", "upload e s"])
def test_a_graph_that_does_not_fit_is_refused_without_the_driver(gpu, script, command):
    script.do(*graph("e", "66M"))
    assert script(command) == OUT_OF_MEMORY
    assert gpu.calls()["cuGraphLaunch"] == gpu.calls()["cuGraphUpload"] == 0
    assert agreed(gpu, script.slice) == 0
    assert refusals(script.slice) == 1


def test_an_upload_takes_the_memory_and_the_launch_no_more(gpu, script):
    script.do(*graph("e", "32M"), "upload e s")
    assert agreed(gpu, script.slice) == 32 * MIB
    script.do(f"{LAUNCH} e s")
    assert agreed(gpu, script.slice) == 32 * MIB


def test_graphs_on_one_stream_share_their_memory(gpu, script):
    """HAMi-core counted none of it; each by itself they would need 96 MiB."""
    for name in "efh":
        script.do(*graph(name, "32M"))
    for _ in range(3):
        for name in "efh":
            script.do(f"{LAUNCH} {name} s")
    assert agreed(gpu, script.slice) <= 64 * MIB
    assert gpu.booked("graphs") <= 64 * MIB
    assert gpu.ledger()["cards"][0]["held"]["peak"] <= 64 * MIB


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


def test_a_captured_allocation_is_charged_at_the_launch(gpu, script):
    """The pattern of PyTorch's cudaMallocAsync backend in CUDA graphs: 20 GiB under 4 GiB."""
    script.do("begin s")
    for _ in range(20):
        script.do("async a 16M s", "async b 16M s", "free_async a s", "free_async b s")
    script.do("end s g", "instantiate e g")
    assert agreed(gpu, script.slice) == 0
    for _ in range(10):
        script.do(f"{LAUNCH} e s")
    assert agreed(gpu, script.slice) == 32 * MIB
    script.do("begin s")
    for number in range(5):
        script.do(f"async a{number} 16M s")
    for number in range(5):
        script.do(f"free_async a{number} s")
    script.do("end s h", "instantiate f h")
    assert script(f"{LAUNCH} f s") == OUT_OF_MEMORY
    assert gpu.peak() <= 64 * MIB


@pytest.mark.parametrize("free", ["free e", "free_async e s"])
def test_an_allocation_that_outlives_its_graph_is_charged(gpu, script, free):
    script.do(*graph("e", "32M", freed=False), f"{LAUNCH} e s", "destroy_executable e")
    script.do("sync s", "graph_trim 0")
    assert agreed(gpu, script.slice) == 32 * MIB
    assert script("alloc p 33M") == OUT_OF_MEMORY
    script.do(free, "sync s", "graph_trim 0")
    assert agreed(gpu, script.slice) == 0
    assert script("alloc p 64M") == SUCCESS


def test_unused_graph_memory_makes_room_for_other_memory(gpu, script):
    script.do(*graph("e", "40M"), f"{LAUNCH} e s", "sync s")
    assert script("alloc p 60M") == SUCCESS
    assert agreed(gpu, script.slice) == 60 * MIB
    assert script(f"{LAUNCH} e s") == OUT_OF_MEMORY
    script.do("free p", f"{LAUNCH} e s")
    assert agreed(gpu, script.slice) == 40 * MIB


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


def test_the_free_memory_shows_what_graphs_have_reserved(gpu, script):
    script.do(*graph("e", "32M"), f"{LAUNCH} e s")
    assert script.value("info", "free") == 32 * MIB


def test_launches_of_a_fork_are_the_driver_s(gpu, script):
    script.do(*graph("e", "32M"), f"{LAUNCH} e s")
    assert script(f"fork {LAUNCH} e s") != SUCCESS
    assert agreed(gpu, script.slice) == 32 * MIB


def test_below_the_limit_it_makes_no_difference(trace_pair):
    script = ["init", "device 0", "stream s", *graph("e", "4M"), f"{LAUNCH} e s"]
    script += ["graph_attribute 0 0", "graph_attribute 0 2", "clone h E", "instantiate d E"]
    script += ["destroy_node e1", *graph("f", "2M", freed=False), f"{LAUNCH} f s", f"{LAUNCH} f s"]
    script += ["fill f 2M", "attributes f", "free f", f"{LAUNCH} f s", "free_async f s", "free f"]
    script += [
        "begin s",
        "async a 4M s",
        "free_async a s",
        "end s g",
        "instantiate k g",
        "upload k s",
    ]
    script += [f"{LAUNCH} k s", "destroy_executable k", f"{LAUNCH} k s", "graph_trim 0"]
    script += ["graph_attribute 0 2", "graph_attribute 0 3", "reset_graph_attribute 0 3"]
    bare, limited = trace_pair("console", GIB, input="\n".join(script))
    assert limited == bare
