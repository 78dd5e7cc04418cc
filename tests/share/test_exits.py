"""Programs that end when their work has ended: it is billed, and their debt is kept."""

from dataclasses import replace

import pytest

from share import workloads as w
from support.world import Container, Event, Program

_US = 200_000
_KERNEL = _US / 1e6


def _once(end, begin=0.0):
    return Program((_US, end), begin, name="once")


@pytest.mark.parametrize("coordinator", [True, False], ids=["coordinated", "by itself"])
def test_a_program_that_waits_and_exits_is_billed(world, coordinator):
    played = world(coordinator=coordinator).play([Container("one", [_once("exit")], 10)], 1.0)
    assert played.busy("one") == pytest.approx(_KERNEL, abs=1e-6)
    assert played.billed["one"] == pytest.approx(_KERNEL, rel=0.01)


def test_a_program_that_exits_while_its_kernel_runs_is_billed_so_far(world):
    """The driver ends the kernel with the process."""
    played = world().play([Container("one", [_once("running")], 10)], 1.0)
    assert played.billed["one"] == pytest.approx(played.busy("one"), abs=0.001)
    assert 0.04 <= played.busy("one") <= 0.06


def test_a_context_destroyed_before_our_exit_handler_is_harmless(world):
    """A handler that was registered after the first launch runs before ours."""
    played = world().play([Container("one", [_once("late")], 10)], 1.0)
    assert played.said["one"] == [{"launched": 1}]
    assert played.billed["one"] == pytest.approx(_KERNEL, rel=0.01)


def test_launches_of_an_exit_handler_are_limited_and_do_not_hang(world):
    """The storage of the main thread is freed by then."""
    seconds = 12.0
    half = Container("half", [w.ASYNC_500US.program], 50)
    played = world().play([Container("one", [_once("handler")], 20), half], seconds)
    assert played.busy("one") == pytest.approx(4 * _KERNEL, abs=0.001)
    assert played.said["one"] == [{"launched": 1}]
    # It loses 0.17 s once, in the second in which the kernels of the other run.
    assert played.share("half", 1.0) == pytest.approx(50, abs=2.0)


def test_a_program_that_executes_itself_repeatedly_gets_its_share(world):
    loop = Program((10.0, 20_000), name="reexec")
    half = Container("half", [w.ASYNC_500US.program], 60)
    played = world().play([Container("loop", [loop], 10), half], 10.0)
    parts = [played.share(name) for name in ("loop", "half")]
    assert parts == pytest.approx([10, 60], abs=1.0)


@pytest.mark.parametrize("coordinator", [True, False], ids=["coordinated", "by itself"])
@pytest.mark.parametrize(("before", "after", "fair"), [(10, 90, 6.44), (20, 10, 26.5)])
def test_a_debt_left_behind_is_as_large_at_another_share(world, before, after, fair, coordinator):
    """Half a second after three seconds of work the share changes. Then another program begins."""
    first = Program((3_000_000, "exit"), name="once")
    container = Container("one", [first, Program((_US, "exit"), 4.0, name="once")], before)
    change = Event(3.5, "set", "one", now=replace(container, share=after))
    played = world(coordinator=coordinator).play([container], 40.0, [change])
    # Between the change and the start of the next program, the debt is paid at the old share only.
    unpaid = 0.0 if coordinator else 0.5 * abs(after - before) / after
    assert played.first("one", 3.2) == pytest.approx(fair, abs=0.6 + unpaid)
