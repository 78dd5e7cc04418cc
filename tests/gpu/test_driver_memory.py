"""What the driver takes itself is inside the limit: contexts, larger limits, whole granules.

The figures of a real card are measured first, outside of any slice.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from gpu.card import SOURCES, Slice, begin, python_path
from support import slices
from support.console import OUT_OF_MEMORY, SUCCESS, Console
from support.running import Started
from support.slices import GIB, MIB

STEP = 32 * MIB


@pytest.fixture
def context(card):
    """Bytes that a context takes on this card, in whole MiB."""
    before = card.used()
    with card.console():
        grown = card.used() - before
    card.wait_until(lambda: card.used() <= before + card.slack, "the context's memory is free")
    return -(-grown // MIB) * MIB


def outside(limited):
    """A console in the slice without a context."""
    console = Console(limited.card.programs("console"), limited.env)
    console.do("lookup dlsym", "init")
    return console


def test_a_context_is_part_of_the_limit(card, context, note):
    note("bytes of a context", context)
    limit = context + 256 * MIB
    limited = card.slice(limit, context_memory=context)
    before = card.used()
    with limited.console() as console:
        assert limited.usage() == limited.charged() == context
        assert console.value("info", "free") == 256 * MIB
        assert console.fill("alloc a {size}", STEP, limit) == (256 * MIB, OUT_OF_MEMORY)
        assert limited.charged() == limit
        assert card.used() - before <= limit + card.slack
        with outside(limited) as other:
            assert other("device 0") == OUT_OF_MEMORY
        assert card.used() - before <= limit + card.slack


def test_every_context_is_charged_until_it_is_destroyed(card, context):
    limited = card.slice(3 * context + 64 * MIB, context_memory=context)
    before = card.used()
    with limited.console() as console, limited.console():
        assert limited.charged() == 2 * context
        console.do("context c 0")
        assert limited.charged() == 3 * context
        assert card.used() - before <= limited.charged() + 3 * card.slack
        assert console("context d 0") == OUT_OF_MEMORY
        console.do("destroy c")
        assert limited.charged() == 2 * context


def test_a_green_context_is_charged_its_primary_context(card, context):
    limited = card.slice(context + 128 * MIB, context_memory=context)
    before = card.used()
    with outside(limited) as console:
        if console("green g 16") != SUCCESS:
            pytest.skip(f"needs green contexts: {console.outputs}")
        console.do("green_context c g", "current c", "alloc a 64M")
        assert limited.charged() == context + 64 * MIB
        assert card.used() - before <= limited.charged() + 2 * card.slack
        assert console("alloc b 65M") == OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("limit", "kernel"),
    [
        ("stack 4K", ("deep.ptx", "deep", "5")),
        ("heap 256M", ("heap.ptx", "allocate", "1M")),
        ("printf 64M", ("print.ptx", "print", "0")),
    ],
)
def test_memory_of_a_raised_limit_is_charged(card, context, limit, kernel, note):
    """Beside the same program without it: a module that calls malloc takes memory by itself."""
    limited = card.slice(context + 2 * GIB, context_memory=context)
    file, name, argument = kernel

    def program(*commands):
        before = card.used()
        with limited.console() as console:
            console.do(*commands, f"module m {SOURCES / file}", f"kernel k m {name}")
            console.do(f"launch_with k - {argument}", "sync_context")
            figures = card.used() - before, limited.charged()
        card.wait_until(lambda: card.used() <= before + card.slack, "the memory is free")
        return figures

    default, charged = program()
    raised, charged_more = program(f"limit {limit}")
    note("bytes by NVML, charged", [raised - default, charged_more - charged])
    assert raised - default <= charged_more - charged + card.slack


def test_a_raised_limit_that_does_not_fit_is_refused(card, context):
    limited = card.slice(context + 256 * MIB, context_memory=context)
    with limited.console() as console:
        before = console.value("limit_get heap", "value")
        assert console("limit heap 1G") == OUT_OF_MEMORY
        assert console.value("limit_get heap", "value") == before
        assert limited.charged() == context


SWEEPER = Path(slices.__file__).with_name("sweeper.py")


@pytest.fixture
def measured(card, context):
    """A slice whose memory is measured, as on a node of Kubernetes."""
    from hami_py._native import GrantsPage

    runtime = card.folder / "runtime"
    directory = runtime / "slices" / "measured"
    limits = {card.uuid: context + 256 * MIB}
    slices.make(directory, limits, context_memory=context, granule=2 * MIB)
    GrantsPage.create(directory / "grants")
    env = {**card.env, **python_path()}
    coordinator = [sys.executable, "-m", "hami_py.coordinator", runtime]
    with Started(coordinator, env), Started([sys.executable, SWEEPER, runtime], env) as sweeper:
        sweeper.wait_for("ready")
        yield Slice(card, directory, "measured")


def test_the_variables_of_a_module_are_charged_once_they_are_measured(
    card, context, measured, note
):
    before = card.used()
    with measured.console() as console:
        if str(console.pid) not in card.observe()["processes"]:
            pytest.skip("needs an NVML that lists the processes under their own PIDs")
        console.do(f"module m {SOURCES / 'large.ptx'}", "kernel k m touch", "launch_with k - 0")
        console.do("sync_context")
        grown = card.used() - before
        seconds = card.wait_until(
            lambda: measured.charged() >= grown - card.slack, "the module is charged"
        )
        note("seconds until the module was charged", round(seconds, 3))
        note("bytes by NVML, charged", [grown, measured.charged()])
        beyond = 257 * MIB - (grown - context) + card.slack
        assert console(f"alloc a {beyond}") == OUT_OF_MEMORY


def test_requests_just_over_half_a_granule_stay_within_the_limit(card):
    """Each takes 2 MiB of a real card."""
    limited = card.slice(128 * MIB, granule=2 * MIB)
    with limited.console() as console:
        before = card.used()
        count = 0
        while count < 128 and console(f"alloc a{count} {MIB + 1}") == SUCCESS:
            count += 1
        assert count == 64
        assert limited.charged() == 128 * MIB
        assert card.used() - before <= 128 * MIB + card.slack


def test_hami_run_charges_for_a_context_what_hami_doctor_has_measured(card, context, note):
    """Beside other processes it finds less, by 3.25 MiB on an H100."""
    command = (sys.executable, "-m", "hami_py", "run", "--gpumem", "2GiB", "--")
    env = {**card.env, **python_path()}
    env |= {"HAMI_RUNTIME_DIR": str(card.folder), "HAMI_LIBRARY": str(card.library)}
    # The stub's programs otherwise charge none.
    env = {name: value for name, value in env.items() if name != "HAMI_CONTEXT_MEMORY"}
    doctor = [sys.executable, "-m", "hami_py", "doctor"]
    subprocess.run(doctor, env=env, check=False, capture_output=True, timeout=120)
    with Console(card.programs("console"), env, prefix=command) as console:
        begin(console)
        charged = 2 * GIB - console.value("info", "free")
        note("bytes of a context: measured, charged", [context, charged])
        assert charged == context if card.stub else abs(charged - context) <= 8 * MIB
