"""Guarantees about shares that no other file tests; each test's name is the guarantee."""

from dataclasses import replace

import pytest

from share import workloads as w
from support.world import Container, Event, Program

#: Seconds until a change takes effect, and until a program that becomes active gets its first
#: grant.
_CHANGE, _GRANT = 0.1, 0.05

#: Seconds that may be saved up, or used before the first bill: a turn.
_TURN = 0.02


@pytest.mark.parametrize(("before", "after"), [(10, 90), (90, 10)])
def test_a_change_takes_effect_within_100_ms(world, before, after):
    """The fifth of a second after these is measured, so that 50 ms more would show."""
    alone = w.ASYNC_500US.alone(before)
    change = Event(2.0, "set", "alone", now=replace(alone, share=after))
    played = world().play([alone], 3.0, [change])
    busy = played.busy("alone", 2.0 + _CHANGE, 2.0 + _CHANGE + 0.2)
    assert busy == pytest.approx(0.2 * after / 100, abs=_TURN)


@pytest.mark.parametrize("mode", ["hard", "soft"])
def test_a_change_beside_others_takes_effect_within_100_ms(world, mode):
    """Turns are 20 ms, so each container has several in a fifth of a second."""
    both = [
        Container(name, [w.ASYNC_500US.program], share, mode)
        for name, share in (("a", 20), ("b", 80))
    ]
    swap = [
        Event(2.0, "set", "a", now=replace(both[0], share=80)),
        Event(2.0, "set", "b", now=replace(both[1], share=20)),
    ]
    played = world().play(both, 3.0, swap)
    since = 2.0 + _CHANGE
    busy = [played.busy(name, since, since + 0.2) for name in "ab"]
    assert busy == pytest.approx([0.16, 0.04], abs=_TURN + 0.005)


@pytest.mark.parametrize("early", [1, 2])
@pytest.mark.parametrize("begin", [2.0, 2.013])
def test_the_first_grant_comes_soon_beside_fewer_too(world, early, begin):
    workload = w.ASYNC_5MS
    others = [Container(f"c{index}", [workload.program], 30) for index in range(early)]
    late = Container("late", [replace(workload.program, begin=begin)], 10)
    played = world().play([*others, late], 3.0)
    first = played.first("late", begin)
    assert first is not None
    assert first <= begin + _GRANT + workload.longest_us / 1e6


def test_a_neighbour_without_a_share_takes_the_rest_of_two_shares(world):
    """After the half second of work that it has queued before the others start."""
    program = w.ASYNC_500US.program
    three = [
        Container("thirty", [program], 30),
        Container("ten", [program], 10),
        Container("free", [program]),
    ]
    played = world().play(three, 7.0)
    parts = [played.share(one.name, 1.0) for one in three]
    assert parts == pytest.approx([30, 10, 60], abs=1.0)


@pytest.mark.parametrize("mode", ["hard", "soft"])
def test_kernels_of_two_seconds_are_paid_back_beside_others(world, mode):
    """Each keeps the other waiting for a hundred turns."""
    long = Program(("--work", "sync", "--kernel-us", "2000000"))
    both = [
        Container("long", [long], 25, mode),
        Container("short", [w.ASYNC_5MS.program], 75, mode),
    ]
    seconds = 48.0
    played = world().play(both, seconds)
    parts = [played.share(one.name) for one in both]
    # The last of the kernels may not be paid yet.
    unpaid = 100 * 2.0 * 0.75 / seconds
    assert parts == pytest.approx([25, 75], abs=1.0 + unpaid)


@pytest.mark.parametrize(
    ("shares", "mode", "late"),
    [
        ((10, 90), "soft", 0.0),
        ((5, 95), "hard", 0.0),
        ((None, 20), "hard", 0.0),
        ((None, 20), "soft", 0.0),
        ((20, None), "hard", 0.0),
        ((100, 20), "soft", 0.0),
        ((20, 100), "soft", 0.0),
        ((None, 20), "hard", 1.0),
        ((20, None), "soft", 1.0),
    ],
    ids=str,
)
def test_collectives_continue_whatever_the_shares(world, shares, mode, late):
    """Two processes of each container, one on each card, that wait for each other.

    A kernel that waits is busy too, so the test counts how often they meet.
    """
    seconds, round_us = 4.0, 500
    containers = [
        Container(
            name,
            [Program((seconds, round_us, card), begin, name="collective") for card in (0, 1)],
            share,
            mode,
        )
        for name, share, begin in zip("ab", shares, (0.0, late), strict=True)
    ]
    end = [Event(late + seconds + 1.0, "kill", name) for name in "ab"]
    played = world(cards="a100,a100").play(containers, late + seconds, end)
    whole = sum(_part(share) for share in shares)
    for container in containers:
        meetings = min(sum(kernels.values()) for kernels in played.launched[container.name])
        due = seconds * 1e6 / round_us * _part(container.share) / whole
        assert meetings >= 0.8 * due, f"{container.name} hardly gets on: {meetings} of {due}"


def _part(share):
    """Percent. Beside a container with 20, one without a share gets the rest."""
    return 80 if share is None or share == 100 else share
