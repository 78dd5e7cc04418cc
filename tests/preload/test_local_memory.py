"""Local memory of kernels is charged before a launch can make the driver take it.

The stub's h200-coarse takes it at the first launch, as an H200 and an H100 do: the number behind
`local` in a kernel's name is what each thread has. The ledger counts it as `local`.
"""

import contextlib

import pytest

from hami_py._native import Account
from support import slices
from support.console import OUT_OF_MEMORY, SUCCESS, Console
from support.slices import GIB, MIB

CONTEXT = 527 * MIB
"""Bytes that a context takes on the stub's H200."""

KIB = 132 * 2048 * 1024
"""Bytes that one KiB of local memory takes: for each thread that the card can run at once."""


@pytest.fixture
def console(program, preload, tmp_path):
    """`console(gpu, limit)`: a console with a module and a library, whose context is charged."""
    with contextlib.ExitStack() as started:

        def start(gpu, limit, first="device 0"):
            path = tmp_path / f"slice{limit}"
            limits = dict.fromkeys(gpu.uuids(), limit)
            if not path.exists():
                slices.make(path, limits, context_memory=CONTEXT, granule=2 * MIB)
            ours = Console(program("console"), {**gpu.charging_env, **preload(gpu, path)}, path)
            started.enter_context(ours).do("init", first, "module m", "library l")
            return ours

        yield start


def charged(script):
    """The bytes that the account has beside the context."""
    return Account.open(script.slice / "account").snapshot().memory_used[0] - CONTEXT


def taken(gpu):
    """What the driver has taken for local memory: now, and at most."""
    level = gpu.ledger()["cards"][0]["local"]
    return level["now"], level["peak"]


@pytest.fixture
def h200(stub_server):
    return stub_server("h200-coarse")


WAYS = {
    "a module's": ["kernel k m local{}"],
    "a library's": ["library_kernel k l local{}"],
    "a library's, by its function": ["library_kernel g l local0", "library_kernel k l local{}"],
    "by its function": ["library_kernel g l local{}", "kernel_function k g"],
}
each_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@each_way
def test_a_kernel_s_local_memory_is_charged_when_its_handle_is_returned(h200, console, way):
    script = console(h200, 8 * GIB)
    before = charged(script)
    script.do(*(command.format(16384) for command in way))
    assert taken(h200) == (0, 0)
    assert charged(script) - before == 15 * KIB
    script.do("launch cuLaunchKernel k -", "launch cuLaunchKernel k -")
    assert taken(h200) == (15 * KIB, 15 * KIB)
    assert charged(script) - before == 15 * KIB


@each_way
def test_a_kernel_whose_local_memory_does_not_fit_is_refused(h200, console, way):
    script = console(h200, 4 * GIB)
    before = charged(script)
    *first, last = (command.format(16384) for command in way)
    results = [script(command) for command in (*first, last)]
    assert OUT_OF_MEMORY in results
    assert charged(script) == before
    assert taken(h200) == (0, 0)
    script.do(f"alloc a {3 * GIB}")


def test_only_what_a_kernel_needs_beyond_the_largest_is_charged(h200, console):
    script = console(h200, 20 * GIB)
    before = charged(script)
    for local, most in [(0, 1), (1024, 1), (4096, 4), (16384, 16), (1024, 16), (65536, 64)]:
        script.do(f"kernel k m local{local}")
        assert charged(script) - before == (most - 1) * KIB
        script.do("launch cuLaunchKernel k -")
        assert taken(h200)[0] == (most - 1) * KIB
    script.do("unload m")
    assert charged(script) - before == taken(h200)[0] == 63 * KIB


def test_local_memory_and_the_stack_limit_share_what_the_driver_takes(h200, console):
    script = console(h200, 8 * GIB)
    before = charged(script)
    script.do("limit stack 8192", "kernel k m local4096", "launch cuLaunchKernel k -")
    assert charged(script) - before == taken(h200)[0] == 7 * KIB
    script.do("kernel k m local16384", "launch cuLaunchKernel k -")
    assert charged(script) - before == taken(h200)[0] == 15 * KIB
    # Whether a lower limit returns it was not measured, so it stays charged.
    script.do("limit stack 1024")
    assert charged(script) - before == 15 * KIB


def test_it_is_uncharged_with_its_context(h200, console):
    script = console(h200, 8 * GIB, "context c 0")
    script.do("kernel k m local16384", "launch cuLaunchKernel k -", "destroy c")
    assert charged(script) == -CONTEXT
    assert taken(h200)[0] == 0


def test_it_never_passes_the_limit_beside_other_memory(h200, console):
    script = console(h200, 8 * GIB)
    other = console(h200, 8 * GIB)
    script.do(f"alloc a {3 * GIB}", "kernel k m local8192", "launch cuLaunchKernel k -")
    assert other("kernel k m local16384") == OUT_OF_MEMORY
    script.do("free a")
    assert other("kernel k m local16384") == SUCCESS
    assert other("launch cuLaunchKernel k -") == SUCCESS
    assert h200.ledger()["cards"][0]["occupied"]["peak"] <= 8 * GIB


def test_a_card_whose_figures_are_unknown_charges_nothing_beforehand(stub_server, console):
    """The A100's were not measured."""
    gpu = stub_server("a100")
    script = console(gpu, 8 * GIB)
    before = charged(script)
    script.do("kernel k m local65536", "launch cuLaunchKernel k -")
    assert charged(script) == before
