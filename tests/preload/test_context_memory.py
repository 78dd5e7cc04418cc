"""What programs add to a context: larger limits, and green contexts.

The stub's h200-coarse takes memory when a limit is raised; the ledger counts it as `local`.
"""

import pytest

from hami_py._native import Account
from support import slices
from support.console import OUT_OF_MEMORY, SUCCESS
from support.memory_use import driver_memory, held
from support.slices import GIB, KIB, MIB

CONTEXT = 527 * MIB
"""Bytes that a context takes on the stub's H200."""

#: What the slices here are charged beside requests.
PARTS = ("context", "local", "rounding")

THREADS = 132 * 2048
"""How many threads it can run at once; each has a stack."""


@pytest.fixture
def card(stub_server):
    return stub_server("h200-coarse")


@pytest.fixture
def slice_of(tmp_path):
    """`slice_of(gpu, limit)`: a slice that charges contexts."""

    def make(gpu, limit=4 * GIB):
        limits = dict.fromkeys(gpu.uuids(), limit)
        return slices.make(tmp_path / "slice", limits, context_memory=CONTEXT, granule=2 * MIB)

    return make


@pytest.mark.parametrize(
    ("command", "bytes"),
    [
        ("limit stack 2K", KIB * THREADS),
        ("limit heap 108M", 100 * MIB),
        ("limit printf 33M", 32 * MIB),
        ("limit stack 512", 0),
    ],
)
def test_a_raised_limit_is_charged_until_it_is_lowered(card, start, slice_of, command, bytes):
    script = start(card, slice_of(card))
    assert driver_memory(card, script.slice, *PARTS) == CONTEXT
    script.do(command)
    assert driver_memory(card, script.slice, *PARTS) == CONTEXT + bytes
    assert script.value("info", "free") == 4 * GIB - CONTEXT - bytes
    script.do(command, f"{command.rsplit(' ', 1)[0]} 100")
    assert driver_memory(card, script.slice, *PARTS) == CONTEXT


def test_a_limit_that_does_not_fit_is_refused_without_the_driver(card, start, slice_of):
    script = start(card, slice_of(card, GIB))
    calls = card.calls()["cuCtxSetLimit"]
    assert script("limit stack 4K") == OUT_OF_MEMORY
    assert card.calls()["cuCtxSetLimit"] == calls
    assert script.value("limit_get stack", "value") == 1024
    assert driver_memory(card, script.slice, *PARTS) == CONTEXT
    assert script("limit stack 2K") == SUCCESS
    used = card.ledger()["cards"][0]["occupied"]["peak"]
    assert used <= GIB


def test_raised_limits_end_with_their_context(card, start, slice_of):
    script = start(card, slice_of(card))
    script.do("limit heap 108M", "context c 0", "limit heap 58M", "limit printf 11M")
    assert driver_memory(card, script.slice, *PARTS) == 2 * CONTEXT + (100 + 50 + 10) * MIB
    script.do("destroy c")
    assert driver_memory(card, script.slice, *PARTS) == CONTEXT + 100 * MIB
    script.do("reset 0")
    assert driver_memory(card, script.slice, *PARTS) == 0


def test_a_green_context_keeps_the_primary_context_and_its_memory(card, start, slice_of):
    script = start(card, slice_of(card), device=None)
    script.do("init", "green g 16", "green_context c g", "current c", "alloc a 64M")
    assert driver_memory(card, script.slice, *PARTS) == CONTEXT
    assert card.booked("context") == CONTEXT
    script.do("green h 16", "green_free g")
    assert driver_memory(card, script.slice, *PARTS) == CONTEXT
    script.do("green_context d h", "current d", "free a", "alloc b 32M", "green_free h")
    (process,) = Account.open(script.slice / "account").snapshot().processes
    assert process.memory[0] == 0
    assert held(card) == {}
    assert card.booked("context") == 0


def test_a_green_context_that_does_not_fit_is_refused(card, start, slice_of):
    script = start(card, slice_of(card, 400 * MIB), device=None)
    script.do("init")
    assert script("green g 16") == OUT_OF_MEMORY
    assert card.booked("context") == 0
