"""Programs that take memory as the allocators of real frameworks do get their limit, and no more.

PyTorch's graphs over `cudaMallocAsync`, NCCL's exchange of buffers between processes, and programs
that hold physical memory in unusual ways. tests/gpu/test_virtual_memory.py has PyTorch's expandable
segments. The ledger says what they hold: never more than the limit, almost all of it where they ask
for everything, and nothing at their end, so that other processes of the slice can use it.
"""

from itertools import permutations
from random import Random

import pytest

from support.console import OUT_OF_MEMORY, SUCCESS
from support.memory_use import (
    accounted,
    agreed,
    held,
    held_peak,
    see_closed_descriptors,
    wait_for_use,
)
from support.slices import GIB, MIB
from support.traces import value

LIMIT = 2 * GIB
SEED = 20260713

#: The part of a limit that a program must be able to use.
USABLE = 0.999


def is_free(gpu, start, slice, card=0):
    """A new process of the slice can use all of a card's limit."""
    other = start(gpu, slice, card)
    other.do(f"alloc a {LIMIT}", "free a")
    other.kill()


# Physical memory that is held in unusual ways.


@pytest.mark.parametrize("granule", [2, 20, 64])
def test_memory_whose_handle_is_released_at_once_is_limited(gpu, start, granule):
    """Only the mappings hold it: nothing that the program has names it."""
    script = start(gpu, LIMIT)
    script.do(f"reserve r {2 * LIMIT}")
    count = 0
    while (result := script(f"create h {granule}M")) == SUCCESS:
        script.do(f"map r+{count * granule}M h", "release h")
        count += 1
        assert count <= LIMIT // MIB
    assert result == OUT_OF_MEMORY
    assert count == LIMIT // (granule * MIB)
    assert agreed(gpu, script.slice) == count * granule * MIB
    script.do(f"unmap r {count * granule}M")
    assert agreed(gpu, script.slice) == 0
    assert gpu.peak() <= LIMIT
    is_free(gpu, start, script.slice)


def test_memory_that_is_never_mapped_is_limited(gpu, start):
    script = start(gpu, LIMIT)
    count = 0
    while script(f"create h{count} 20M") == SUCCESS:
        count += 1
    assert count == LIMIT // (20 * MIB)
    small = 0
    while script(f"create g{small} 2M") == SUCCESS:
        small += 1
    assert agreed(gpu, script.slice) == LIMIT == gpu.peak()
    assert script("alloc a 512") == OUT_OF_MEMORY
    script.do(*(f"release h{number}" for number in range(count)))
    script.do(f"alloc a {count * 20}M")
    script.do(*(f"release g{number}" for number in range(small)), "free a")
    assert agreed(gpu, script.slice) == 0
    is_free(gpu, start, script.slice)


def test_one_allocation_at_many_addresses_is_charged_once(gpu, start):
    script = start(gpu, LIMIT)
    script.do(f"create h {LIMIT // 2}", "reserve r 32G")
    for place in range(16):
        script.do(f"map r+{place}G h")
    assert agreed(gpu, script.slice) == LIMIT // 2
    script.do("release h", "access r+7G 1G", "write r+7G 9")
    for place in range(15):
        script.do(f"unmap r+{place}G 1G")
        assert agreed(gpu, script.slice) == LIMIT // 2
    script.do("access r+15G 1G", "read r+15G")
    assert script.outputs == "9"
    assert script(f"create g {LIMIT}") == OUT_OF_MEMORY
    script.do("unmap r+15G 1G", f"create g {LIMIT}", "release g")
    assert agreed(gpu, script.slice) == 0


# NCCL's buffers.

BUFFER = 64 * MIB


def accounted_at_least(gpu, slice, card):
    """No process holds memory that nobody is charged for; the ledger's bytes."""
    ours, theirs = accounted(slice, card), held(gpu, card)
    assert sum(ours.values()) >= sum(theirs.values()), f"account {ours}, ledger {theirs}"
    return sum(theirs.values())


def export_buffer(script, card):
    """Create a buffer that can be exported, from a thread without a context; its descriptor."""
    script.do(f"thread create h {BUFFER} {card} fd", f"thread reserve r {BUFFER}")
    script.do("thread map r h", f"thread access r {BUFFER} {card}", "thread export h")
    return value(script.outputs, "pid"), value(script.outputs, "fd")


def import_buffer(script, card, pid, fd):
    """Import it, and map it for its card; on the stub no other card can have access."""
    script.do(f"thread import h {pid} {fd}", f"thread reserve r {BUFFER}", "thread map r h")
    script.do(f"thread access r {BUFFER} {card}")
    assert script(f"thread access r {BUFFER} {1 - card}") != SUCCESS


@pytest.fixture
def two_cards(stub_server):
    return stub_server("a100,a100")


@pytest.fixture
def peers(two_cards, start):
    """Two processes of one slice, without a context."""
    first = start(two_cards, LIMIT, None)
    second = start(two_cards, first.slice, None)
    for script in (first, second):
        script.do("init")
    return first, second


def test_shared_buffers_are_released_by_both_in_every_order(two_cards, start, peers):
    """The exporter closes its descriptor as soon as it has been imported."""
    exporter, importer = peers
    ends = [(script, end) for script in peers for end in ("release h", f"unmap r {BUFFER}")]
    for number, order in enumerate(permutations(ends)):
        card = number % 2
        pid, fd = export_buffer(exporter, card)
        assert agreed(two_cards, exporter.slice, card) == BUFFER
        import_buffer(importer, card, pid, fd)
        exporter.do(f"close_fd {fd}")
        for script, end in order:
            assert accounted_at_least(two_cards, exporter.slice, card) == BUFFER
            script.do(f"thread {end}")
        see_closed_descriptors(exporter, card)
        assert agreed(two_cards, exporter.slice, card) == 0, order
        for script in peers:
            script.do(f"unreserve r {BUFFER}")
    for card in range(2):
        assert two_cards.peak(card) == BUFFER
        is_free(two_cards, start, exporter.slice, card)


def test_shared_buffers_whose_descriptor_stays_open_are_charged_as_long(two_cards, start, peers):
    """In every order of the two processes' ends, the descriptor's among them."""
    exporter, importer = peers
    descriptor = (exporter, "close_fd")
    ends = [(script, end) for script in peers for end in ("release h", f"unmap r {BUFFER}")]
    for number, order in enumerate(permutations([*ends, descriptor])):
        card = number % 2
        pid, fd = export_buffer(exporter, card)
        import_buffer(importer, card, pid, fd)
        for script, end in order:
            accounted_at_least(two_cards, exporter.slice, card)
            script.do(f"close_fd {fd}" if end == "close_fd" else end)
        see_closed_descriptors(exporter, card)
        assert agreed(two_cards, exporter.slice, card) == 0, order
        for script in peers:
            script.do(f"unreserve r {BUFFER}")
    for card in range(2):
        is_free(two_cards, start, exporter.slice, card)


def test_a_closed_descriptor_releases_its_memory_for_other_processes(two_cards, start, peers):
    exporter, _ = peers
    _, fd = export_buffer(exporter, 0)
    exporter.do("release h", f"unmap r {BUFFER}", f"close_fd {fd}")
    assert held(two_cards) == {}
    is_free(two_cards, start, exporter.slice)


@pytest.mark.parametrize("killed", ["importer", "exporter", "both"])
@pytest.mark.parametrize("is_released", [False, True])
def test_a_killed_process_leaves_shared_buffers_to_its_peer(
    two_cards, start, peers, killed, is_released
):
    exporter, importer = peers
    for card in range(2):
        pid, fd = export_buffer(exporter, card)
        import_buffer(importer, card, pid, fd)
        exporter.do(f"close_fd {fd}")
        if is_released:
            # The mappings keep the memory.
            for script in peers:
                script.do("release h")
    if killed != "exporter":
        importer.kill()
    if killed != "importer":
        exporter.kill()
    for card in range(2):
        wait_for_use(two_cards, exporter.slice, 0 if killed == "both" else BUFFER, card)
    for script in peers:
        script.kill()
    for card in range(2):
        wait_for_use(two_cards, exporter.slice, 0, card)
        assert two_cards.peak(card) == BUFFER
        is_free(two_cards, start, exporter.slice, card)


def test_many_shared_buffers_use_the_limit(two_cards, start, slice_dir):
    """Each process has a slice of its own, so that each can map all that the other has."""
    limits = dict.fromkeys(two_cards.uuids(), LIMIT)
    exporter, importer = (start(two_cards, slice_dir(limits), None) for _ in range(2))
    exporter.do("init")
    importer.do("init")
    count = LIMIT // BUFFER
    for card in range(2):
        for script in (exporter, importer):
            script.do(f"reserve r {LIMIT}")
        for number in range(count):
            exporter.do(f"thread create h{number} {BUFFER} {card} fd", f"thread export h{number}")
            pid, fd = value(exporter.outputs, "pid"), value(exporter.outputs, "fd")
            importer.do(f"thread import h{number} {pid} {fd}")
            for script in (exporter, importer):
                script.do(f"map r+{number * BUFFER} h{number}", f"release h{number}")
            exporter.do(f"close_fd {fd}")
        assert two_cards.held(card) == two_cards.peak(card) == LIMIT
        assert sum(accounted(exporter.slice, card).values()) == LIMIT
        for script in (exporter, importer):
            assert script(f"create x 2M {card}") == OUT_OF_MEMORY
        exporter.do(f"unmap r {LIMIT}")
        assert sum(accounted(importer.slice, card).values()) == LIMIT == two_cards.held(card)
        importer.do(f"unmap r {LIMIT}")
        assert two_cards.held(card) == 0
        for script in (exporter, importer):
            script.do(f"create x {LIMIT} {card}", "release x", f"unreserve r {LIMIT}")


def test_memory_that_its_own_process_imports_again_is_limited(two_cards, peers):
    script, _ = peers
    for number in range(2 * LIMIT // BUFFER):
        if script(f"create h {BUFFER} 0 fd") == OUT_OF_MEMORY:
            break
        script.do("export h")
        pid, fd = value(script.outputs, "pid"), value(script.outputs, "fd")
        script.do("release h", f"import i{number} {pid} {fd}", f"close_fd {fd}")
    assert two_cards.peak() <= LIMIT


# PyTorch's graphs over cudaMallocAsync.

AUTO_FREE = 1
SIZES = [64, 32, 128, 16, 96, 8, 200, 4] * 3


def capture(script, graph, sizes, output=0):
    """Capture many pairs of allocation and free on stream s, in MiB, and an output that stays.

    Each allocation but the first comes before the free of the one before it.
    """
    script.do("begin s 0")
    for number, size in enumerate(sizes):
        script.do(f"async t{number} {size}M s")
        if number:
            script.do(f"free_async t{number - 1} s")
    script.do(f"free_async t{len(sizes) - 1} s")
    if output:
        script.do(f"async o{graph} {output}M s")
    script.do(f"end s g{graph}", f"instantiate e{graph} g{graph} {AUTO_FREE}")
    script.do(f"destroy_graph g{graph}")


def launch(script, graph):
    result = script(f"launch cuGraphLaunch e{graph} s")
    script.do("sync s")
    return result


def test_captured_graphs_share_their_pool_and_return_it(gpu, start):
    script = start(gpu, LIMIT)
    script.do("stream s", "async x 256M s")
    for graph in range(6):
        capture(script, graph, SIZES)
    assert agreed(gpu, script.slice) == 256 * MIB
    assert launch(script, 0) == SUCCESS
    kept = agreed(gpu, script.slice)
    assert kept >= (256 + 204) * MIB
    for graph in [*range(6)] * 5:
        assert launch(script, graph) == SUCCESS
        assert agreed(gpu, script.slice) == kept
    other = start(gpu, script.slice)
    assert other(f"alloc a {LIMIT - kept + 512}") == OUT_OF_MEMORY
    other.do(f"alloc a {LIMIT - kept}")
    # The graphs have the memory that they need.
    for graph in range(6):
        assert launch(script, graph) == SUCCESS
    other.do("free a")
    for graph in range(6):
        script.do(f"destroy_executable e{graph}")
    script.do("graph_trim 0", "free_async x s", "sync s")
    assert agreed(gpu, script.slice) == 0
    other.do(f"alloc a {LIMIT}")
    assert held_peak(gpu) == LIMIT


def test_outputs_of_captured_graphs_use_the_limit(gpu, start):
    script = start(gpu, LIMIT)
    script.do("stream s")
    # The output is behind the temporaries, because it is larger than their 48 MiB.
    fitting = LIMIT // (128 * MIB)
    for graph in range(fitting + 1):
        capture(script, graph, [8, 40, 4], 80)
    for graph in range(fitting):
        assert launch(script, graph) == SUCCESS
    assert agreed(gpu, script.slice) >= LIMIT * USABLE
    # Again, which frees the output of the last time.
    for graph in range(fitting):
        assert launch(script, graph) == SUCCESS
    assert launch(script, fitting) == OUT_OF_MEMORY
    script.do("free_async o5 s", "sync s")
    assert launch(script, fitting) == SUCCESS
    assert agreed(gpu, script.slice) >= LIMIT * USABLE
    for graph in range(fitting + 1):
        if graph != 5:
            script.do(f"free_async o{graph} s")
        script.do(f"destroy_executable e{graph}")
    script.do("sync s", "graph_trim 0")
    assert agreed(gpu, script.slice) == 0
    assert held_peak(gpu) <= LIMIT
    is_free(gpu, start, script.slice)


@pytest.mark.parametrize("refused", ["alloc b 1G", "create b 1G", "launch cuGraphLaunch e1 s"])
def test_a_refused_request_leaves_graphs_that_can_be_launched_again(gpu, start, refused):
    script = start(gpu, LIMIT)
    script.do("stream s")
    for graph in range(2):
        capture(script, graph, [64], 1536)
    for _ in range(2):
        assert launch(script, 0) == SUCCESS
    assert script(refused) == OUT_OF_MEMORY
    assert launch(script, 0) == SUCCESS
    assert agreed(gpu, script.slice) == held_peak(gpu) == (64 + 1536) * MIB


@pytest.mark.parametrize("wanted", ["create h", "alloc h", "managed h"])
def test_what_pools_and_graphs_do_not_use_gives_way_to_other_memory(gpu, start, wanted):
    script = start(gpu, LIMIT)
    script.do("stream s", "default_pool p 0", "set p 4 64G")
    capture(script, 0, [1024])
    end = "release h" if wanted == "create h" else "free h"
    for _ in range(3):
        # PyTorch keeps what it frees in the pool.
        script.do("async a 512M s", "free_async a s", "sync s")
        assert launch(script, 0) == SUCCESS
        assert agreed(gpu, script.slice) == 1536 * MIB
        script.do(f"{wanted} {LIMIT} {1 if wanted == 'managed h' else 0}")
        assert agreed(gpu, script.slice) == LIMIT
        assert launch(script, 0) == OUT_OF_MEMORY
        script.do(end)
        assert agreed(gpu, script.slice) == 0
    assert held_peak(gpu) == LIMIT


def test_graphs_that_run_at_once_never_hold_more_than_the_limit(gpu, start):
    """Six graphs with kernels on three streams; only those that do not overlap can share memory."""
    print("seed", SEED)
    random = Random(SEED)  # noqa: S311
    gpu.control({"command": "kernels", "kernels": {"work": 2000}})
    script = start(gpu, LIMIT)
    script.do("module m", "kernel w m work", "stream s", "stream t", "stream u")
    for graph in range(6):
        size = random.randrange(200, 1200, 2)
        script.do(
            f"graph g{graph}",
            f"alloc_node a{graph} g{graph} {size}M",
            f"kernel_node k{graph} g{graph} w a{graph}",
            f"free_node f{graph} g{graph} a{graph} k{graph}",
            f"instantiate e{graph} g{graph} 0",
        )
    results = []
    for _ in range(150):
        stream = random.choice("stu")
        results.append(script(f"launch cuGraphLaunch e{random.randrange(6)} {stream}"))
        match random.randrange(10):
            case 0:
                script.do("sync_context")
                assert agreed(gpu, script.slice) <= LIMIT
            case 1:
                script.do("graph_trim 0")
            case 2:
                if script(f"alloc b {random.randrange(1, 1500)}M") == SUCCESS:
                    script.do("free b")
            case 3:
                script.do(f"sync {stream}")
    assert results.count(SUCCESS) > 50
    assert {*results} <= {SUCCESS, OUT_OF_MEMORY}
    script.do("sync_context", "graph_trim 0")
    assert agreed(gpu, script.slice) == 0
    assert held_peak(gpu) <= LIMIT
    is_free(gpu, start, script.slice)


#: Eight allocations that no node orders, so that none can have the memory of another one.
BRANCHES = [
    "graph g",
    *(node for n in range(8) for node in (f"alloc_node a{n} g 1G", f"free_node f{n} g a{n} a{n}")),
]

#: The same of two, captured on two streams.
TWO_STREAMS = [
    *("stream s", "stream t", "event v 2", "event w 2", "begin s 0", "record v s", "wait t v"),
    *("async a 1536M s", "free_async a s", "async b 1536M t", "free_async b t"),
    *("record w t", "wait s w", "end s g"),
]

#: When d is allocated, 640 MiB and the rest of the limit are free, and d fits into neither.
A_HOLE = [
    "graph g",
    "alloc_node a g 640M",
    "alloc_node b g 512M a",
    "free_node c g a b",
    "alloc_node d g 1024M c",
    "free_node e g b d",
    "free_node f g d e",
]


@pytest.mark.parametrize(
    "nodes", [BRANCHES, TWO_STREAMS, A_HOLE], ids=["branches", "two streams", "a hole"]
)
def test_a_graph_never_holds_more_than_the_limit(gpu, start, nodes):
    script = start(gpu, LIMIT)
    script.do(*nodes, "instantiate e g 0")
    script("launch cuGraphLaunch e -")
    script.do("sync -")
    assert held_peak(gpu) <= LIMIT
