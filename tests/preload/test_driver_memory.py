"""A context takes memory of the card before the program allocates anything.

The limits page says how much, so a slice charges it inside its limit. The ledger counts contexts
by itself: `occupied` is what programs requested and contexts hold together.
"""

import contextlib

import pytest

from hami_py._native import Account
from support import slices
from support.console import OUT_OF_MEMORY, SUCCESS, Console
from support.running import Started, run
from support.slices import GIB, MIB

CONTEXT = 413 * MIB
"""Bytes that a context takes on the stub's a100."""

LIMIT = GIB


@pytest.fixture
def slice_of(tmp_path):
    """`slice_of(gpu, limit)`: a slice that charges contexts."""
    count = 0

    def make(gpu, limit=LIMIT, context=CONTEXT):
        nonlocal count
        count += 1
        limits = dict.fromkeys(gpu.uuids(), limit)
        return slices.make(tmp_path / f"charging{count}", limits, context_memory=context)

    return make


@pytest.fixture
def console(program, preload):
    """`console(gpu, slice)`: a console in the slice, which has called cuInit."""
    with contextlib.ExitStack() as started:

        def start(gpu, slice_path):
            ours = Console(program("console"), preload(gpu, slice_path), slice_path)
            started.enter_context(ours).do("init")
            return ours

        yield start


def charged(slice_path, card=0):
    """The bytes that the account has, and those of them that are driver memory."""
    seen = Account.open(slice_path / "account").snapshot()
    return seen.memory_used[card], sum(one.driver_memory[card] for one in seen.processes)


def occupied(gpu, card=0):
    """Bytes that programs and contexts hold of a card: now, and the peak."""
    level = gpu.ledger()["cards"][card]["occupied"]
    return level["now"], level["peak"]


def test_a_context_that_does_not_fit_is_out_of_memory(gpu, slice_of, console):
    """It is never created: the ledger has not seen it."""
    ours = slice_of(gpu, CONTEXT - 512)
    program = console(gpu, ours)
    assert program("device 0") == OUT_OF_MEMORY
    assert program("context c 0") == OUT_OF_MEMORY
    assert gpu.ledger()["cards"][0]["context"] == {"now": 0, "peak": 0}
    assert charged(ours) == (0, 0)
    assert Account.open(ours / "account").snapshot().refusals[0] == 2


def test_a_context_of_exactly_the_limit_fits(gpu, slice_of, console):
    program = console(gpu, slice_of(gpu, CONTEXT))
    program.do("device 0")
    assert program.value("info", "free") == 0
    assert program("alloc a 1") == OUT_OF_MEMORY


def test_a_primary_context_is_charged_once_and_until_its_last_reference(gpu, slice_of, console):
    ours = slice_of(gpu)
    program = console(gpu, ours)
    program.do("device 0", "device 0", "release 0")
    assert charged(ours) == (CONTEXT, CONTEXT)
    program.do("alloc a 100M", "release 0")
    assert gpu.booked("context") == 0
    assert charged(ours) == (0, 0)
    program.do("device 0", "alloc a 100M", "reset 0")
    assert (charged(ours), occupied(gpu)[0]) == ((0, 0), 0)
    program.do("device 0")
    assert charged(ours) == (CONTEXT, CONTEXT)


def test_what_the_driver_refuses_is_not_charged(gpu, slice_of, program, preload):
    """A context without a place for its handle, or on a device that does not exist."""
    ours = slice_of(gpu)
    calls = "".join(f"{line}\n" for line in ("init", "context c 7", "device 7", "device 0", "info"))
    env = preload(gpu, ours)
    limited = run([program("console")], env, input=calls).lines
    bare = run([program("console")], gpu.env, input=calls).lines
    assert limited[:3] == bare[:3]
    assert f"free={LIMIT - CONTEXT}" in limited[4]


def test_cards_are_charged_apart(stub_server, slice_of, console):
    gpu = stub_server("a100,a100")
    ours = slice_of(gpu)
    program = console(gpu, ours)
    program.do("device 1")
    assert (charged(ours, 0), charged(ours, 1)) == ((0, 0), (CONTEXT, CONTEXT))


def test_a_page_without_the_figure_charges_no_context(gpu, slice_of, console):
    ours = slice_of(gpu, CONTEXT // 2, context=None)
    program = console(gpu, ours)
    program.do("device 0", f"alloc a {CONTEXT // 2}")
    assert charged(ours) == (CONTEXT // 2, 0)


def test_every_layer_is_charged(gpu, slice_of, program, preload):
    """A slice inside another one: both hold the context, and the smaller limit decides."""
    outer, inner = slice_of(gpu, LIMIT), slice_of(gpu, LIMIT - 100 * MIB)
    with Console(program("console"), preload(gpu, f"{outer}:{inner}")) as ours:
        ours.do("init", "device 0")
        assert charged(outer) == charged(inner) == (CONTEXT, CONTEXT)
        assert ours.value("info", "free") == LIMIT - 100 * MIB - CONTEXT
        assert ours("context c 0") == SUCCESS
        assert ours("context d 0") == OUT_OF_MEMORY


def test_the_context_of_a_killed_process_comes_back(stub_server, slice_of, console):
    """Not before the driver has freed it."""
    gpu = stub_server(free_delay_ms=50)
    ours = slice_of(gpu, CONTEXT + 100 * MIB)
    for _ in range(3):
        program = console(gpu, ours)
        # It waits for the memory of the one before.
        program.do("device 0", "alloc a 100M")
        assert charged(ours) == (CONTEXT + 100 * MIB, CONTEXT)
        program.kill()
    assert occupied(gpu)[1] == CONTEXT + 100 * MIB


def test_threads_that_race_leave_nothing_charged(gpu, slice_of, program, preload):
    """The limit has room for two contexts, and eight threads want two each."""
    limit = 2 * CONTEXT + MIB
    done = run([program("contexts_at_once"), "8", "200"], preload(gpu, slice_of(gpu, limit)))
    assert done.code == 0, done
    assert done.lines[1] == f"left free={limit - CONTEXT} total={limit}"
    assert occupied(gpu)[1] <= limit


def test_processes_that_fill_a_slice_never_exceed_it(gpu, slice_of, program, preload):
    """Contexts and allocations of four processes compete for the same bytes."""
    limit = 3 * CONTEXT + 64 * MIB
    ours = slice_of(gpu, limit)
    script = "init\ndevice 0\n" + "alloc a 16M\ncontext c 0\nalloc b 16M\n"
    with contextlib.ExitStack() as stack:
        tenants = [
            stack.enter_context(Started([program("console")], preload(gpu, ours))) for _ in range(4)
        ]
        for tenant in tenants:
            for line in script.splitlines():
                tenant.tell(line)
        answers = [tenant.next_line() for tenant in tenants for _ in script.splitlines()]
        assert any(" -> 2" in answer for answer in answers)
        now, peak = occupied(gpu)
        assert charged(ours)[0] == now <= peak <= limit


def test_a_forked_child_charges_nothing_for_its_parent(gpu, slice_of, console):
    ours = slice_of(gpu)
    program = console(gpu, ours)
    program.do("device 0")
    program("fork release 0")
    assert charged(ours) == (CONTEXT, CONTEXT)
    assert program.value("info", "free") == LIMIT - CONTEXT


def test_nvml_shows_the_context_as_used(gpu, slice_of, console, program, preload):
    ours = slice_of(gpu)
    console(gpu, ours).do("device 0", "alloc a 100M")
    done = run([program("nvml_memory")], preload(gpu, ours))
    assert f"used={CONTEXT + 100 * MIB}" in done.lines[0]
    assert f"free={LIMIT - CONTEXT - 100 * MIB}" in done.lines[0]
