"""Graphs that allocate stop at the limit, and are charged what the driver reserves for them."""

import pytest

from support.console import OUT_OF_MEMORY
from support.slices import MIB

LIMIT = 256 * MIB
LAUNCH = "launch cuGraphLaunch"


def graph(name, size, *, freed=True):
    """Commands that build the executable graph `name`, which allocates `name` and may free it."""
    node = name.upper()
    free = [f"free_node {node}1 {node} {name} {name}"] if freed else []
    return [
        f"graph {node}",
        f"alloc_node {name} {node} {size}",
        *free,
        f"instantiate {name} {node}",
    ]


def reserved(console):
    """Bytes that the driver has reserved for graphs."""
    console.do("graph_attribute 0 2")
    return int(console.outputs.partition(":")[2])


@pytest.fixture
def limited(card):
    return card.slice(LIMIT)


@pytest.fixture
def console(limited):
    with limited.console() as console:
        console.do("stream s", "stream t")
        yield console


def test_a_launched_graph_is_charged_what_the_driver_reserves(card, limited, console):
    before = card.used()
    console.do(*graph("e", "64M"))
    for _ in range(3):
        console.do(f"{LAUNCH} e s", "sync s")
        assert limited.charged() == reserved(console) >= 64 * MIB
        assert console.value("info", "free") == LIMIT - limited.charged()
        assert 64 * MIB <= card.used() - before <= limited.charged() + card.slack
    assert limited.usage() == limited.charged()
    console.do("graph_trim 0")
    assert limited.charged() == reserved(console) == 0
    console.do(f"alloc p {LIMIT}", "free p", f"{LAUNCH} e s")


@pytest.mark.parametrize("command", [f"{LAUNCH} e s", "upload e s"])
def test_a_graph_over_the_limit_is_refused(card, limited, console, command):
    before = card.used()
    console.do(*graph("e", LIMIT + 2 * MIB))
    assert console(command) == OUT_OF_MEMORY
    assert limited.charged() == 0
    assert limited.refusals() == 1
    assert card.used() - before <= card.slack
    if card.stub:
        assert not {"cuGraphLaunch", "cuGraphUpload"} & {*card.stub.calls()}
    console.do(f"alloc p {LIMIT}")


def test_many_graphs_stay_within_the_limit(card, limited, console):
    """Launched one after the other on two streams, they need four times the limit."""
    before = card.used()
    names = "efhijklm"
    for name in names:
        console.do(*graph(name, "128M"))
    for stream in ("s", "t", "s"):
        for name in names:
            assert console(f"{LAUNCH} {name} {stream}") in (0, OUT_OF_MEMORY)
            assert card.used() - before <= LIMIT + card.slack
        console.do("sync_context")
        assert limited.charged() <= LIMIT


def test_captured_allocations_stay_within_the_limit(card, limited, console):
    """The pattern of PyTorch's cudaMallocAsync backend in CUDA graphs."""
    before = card.used()
    console.do("begin s")
    for _ in range(20):
        console.do("async a 32M s", "async b 32M s", "free_async a s", "free_async b s")
    console.do("end s g", "instantiate e g")
    for _ in range(10):
        console.do(f"{LAUNCH} e s")
    console.do("sync s")
    assert limited.charged() == reserved(console)
    assert 64 * MIB <= card.used() - before <= limited.charged() + card.slack
    console.do("begin s", *(f"async a{number} 32M s" for number in range(10)))
    console.do(*(f"free_async a{number} s" for number in range(10)), "end s h", "instantiate f h")
    assert console(f"{LAUNCH} f s") == OUT_OF_MEMORY
    assert card.used() - before <= LIMIT + card.slack


def test_an_allocation_that_outlives_its_graph_is_charged(card, limited, console):
    before = card.used()
    console.do(*graph("e", "128M", freed=False), f"{LAUNCH} e s", "destroy_executable e", "sync s")
    console.do("graph_trim 0")
    assert limited.charged() >= 128 * MIB
    assert limited.charged() >= card.used() - before - card.slack
    assert console("alloc p 129M") == OUT_OF_MEMORY
    console.do("free_async e s", "sync s", "graph_trim 0")
    assert limited.charged() == 0
    console.do(f"alloc p {LIMIT}")


def test_unused_graph_memory_makes_room_for_other_memory(card, limited, console):
    before = card.used()
    console.do(*graph("e", "192M"), f"{LAUNCH} e s", "sync s", f"alloc p {LIMIT}")
    assert limited.charged() == LIMIT
    assert card.used() - before <= LIMIT + card.slack
    assert console(f"{LAUNCH} e s") == OUT_OF_MEMORY
