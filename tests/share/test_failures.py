"""A container that is killed or stopped costs the others one grant's deadline at most."""

import pytest

from share import workloads as w
from support.world import Container, Event, Program

#: Seconds of a turn, of the deadline for the answer of its holder, and of the launches of the turn
#: that still run: at most two batches of about 2 ms.
_LOST = 0.02 + 0.05 + 0.005


def _two(mode="soft", shares=(50, 50)):
    return [
        Container(name, [w.ASYNC_500US.program], share, mode)
        for name, share in zip("ab", shares, strict=True)
    ]


def test_a_killed_process(world):
    played = world().play(_two(), 4.0, [Event(2.0, "kill", "a")])
    assert played.busy("a", 2.0 + _LOST, 4.0) == 0
    assert played.busy("b", 2.0, 4.0) >= 2.0 * 0.985 - _LOST


def test_a_process_killed_while_it_waits_leaves_no_larger_debt(world):
    """A kernel of 200 ms at ten percent is paid after two seconds, whichever process waits."""
    kernel = ("--work", "sync", "--kernel-us", "200000")
    programs = [Program(kernel), Program(kernel, 1.2)]
    played = world().play(
        [Container("one", programs, 10)], 3.0, [Event(1.0, "kill", "one", process=0)]
    )
    assert played.busy("one", 0.0, 1.9) == pytest.approx(0.2, abs=0.001)
    assert played.busy("one", 1.9, 2.5) == pytest.approx(0.2, abs=0.001)


def test_a_killed_process_leaves_its_container_the_share(world):
    containers = [
        Container("two", [w.ASYNC_500US.program] * 2, 40),
        Container("one", [w.ASYNC_500US.program], 60),
    ]
    played = world().play(containers, 6.0, [Event(2.0, "kill", "two", process=0)])
    after = [played.share(name, 2.0, 6.0) for name in ("two", "one")]
    assert after == pytest.approx([40, 60], abs=100 * _LOST / 4 + 1.0)


def test_a_stopped_container(world):
    stop = [Event(2.0, "stop", "a"), Event(4.0, "go on", "a")]
    played = world().play(_two(), 8.0, stop)
    assert played.busy("b", 2.0, 4.0) >= 2.0 * 0.985 - _LOST
    after = [played.share(name, 4.1, 8.0) for name in "ab"]
    assert after == pytest.approx([w.DIVIDED / 2] * 2, abs=1.0)


def test_a_stopped_container_of_hard_mode_costs_others_nothing(world):
    stop = [Event(2.0, "stop", "a"), Event(4.0, "go on", "a")]
    played = world().play(_two("hard"), 8.0, stop)
    assert played.share("b", 2.0, 4.0) == pytest.approx(50, abs=100 * _LOST / 2 + 1.0)


def test_a_killed_coordinator(world):
    """Each keeps to its own share until another coordinator starts."""
    killed, again, end = 2.0, 4.0, 8.0
    events = [Event(killed, "kill", "coordinator", process=0)]
    played = world().play(_two("hard", (30, 70)), end, events, coordinators=(0.0, again))
    lost = 0.2 - sum(played.busy(name, killed, killed + 0.2) for name in "ab")
    silence = 0.05
    assert lost <= _LOST + silence
    # The driver then switches between them, and each pays for the time of both.
    for name, share in (("a", 30), ("b", 70)):
        assert 0.6 * share <= played.share(name, killed + 0.2, again) <= share + 1.0
    after = [played.share(name, again + 0.1, end) for name in "ab"]
    assert after == pytest.approx([30, 70], abs=1.0)


def test_without_a_coordinator_no_time_is_lent(world):
    """Soft shares are ceilings while it is unknown which slices are idle."""
    killed, again, end = 2.0, 4.0, 8.0
    events = [Event(killed, "kill", "coordinator", process=0)]
    played = world().play(_two(shares=(20, 30)), end, events, coordinators=(0.0, again))
    before = [played.share(name, 0.5, killed) for name in "ab"]
    assert before == pytest.approx([40, 60], abs=1.5)
    for name, share in (("a", 20), ("b", 30)):
        assert 0.6 * share <= played.share(name, killed + 0.2, again) <= share + 1.0
    after = [played.share(name, again + 0.5, end) for name in "ab"]
    assert after == pytest.approx([40, 60], abs=1.0)


def test_without_a_coordinator_one_container_keeps_its_share(world):
    played = world(coordinator=False).play([w.ASYNC_500US.alone(30)], 6.0)
    assert played.share("alone") == pytest.approx(30, abs=1.0)
