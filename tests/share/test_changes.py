"""Changes while programs run take effect soon: of shares, and of activity."""

from dataclasses import replace

import pytest

from share import workloads as w
from support.world import Container, Event, Program

#: Seconds until a change takes effect, and until a program that becomes active gets its first
#: grant. The kernel that is running adds to both.
_CHANGE, _GRANT = 0.1, 0.05


def test_a_share_is_raised_and_lowered(world):
    alone = w.ASYNC_500US.alone(30)
    changes = [
        Event(2.0, "set", "alone", now=replace(alone, share=60)),
        Event(4.0, "set", "alone", now=replace(alone, share=10)),
        Event(6.0, "set", "alone", now=replace(alone, share=None)),
    ]
    played = world().play([alone], 8.0, changes)
    # The driver may have 64 ms of work when the share is lowered, which is paid back.
    paid = 0.064 / 0.1
    for begin, share, change in (
        (0.0, 30, 0.0),
        (2.0, 60, _CHANGE),
        (4.0, 10, _CHANGE + paid),
        (6.0, 100, _CHANGE),
    ):
        since = round(begin + change, 2)
        assert played.share("alone", since, begin + 2.0) == pytest.approx(share, abs=1.0), begin


def test_a_first_share_applies_to_later_launches(world):
    """Launches that the driver already has are executed: half a second of work."""
    alone = w.ASYNC_500US.alone(None)
    played = world().play([alone], 6.0, [Event(2.0, "set", "alone", now=replace(alone, share=10))])
    queued = 0.5
    assert played.share("alone", 0.0, 2.0) >= 99.5
    assert played.busy("alone", 2.0, 2.0 + queued + _CHANGE) <= queued + 0.1 * _CHANGE + 0.005
    assert played.share("alone", 2.0 + queued + _CHANGE, 6.0) <= 11.0


def test_shares_of_neighbours_are_exchanged(world):
    both = [Container(n, [w.ASYNC_500US.program], share) for n, share in (("a", 30), ("b", 70))]
    swap = [
        Event(3.0, "set", "a", now=replace(both[0], share=70)),
        Event(3.0, "set", "b", now=replace(both[1], share=30)),
    ]
    played = world().play(both, 6.0, swap)
    after = [played.share(name, 3.0 + _CHANGE, 6.0) for name in "ab"]
    assert [played.share(name, 0.0, 3.0) for name in "ab"] == pytest.approx([30, 70], abs=1.0)
    assert after == pytest.approx([70, 30], abs=1.0)


def test_modes_and_priorities_change_too(world):
    both = [Container(name, [w.ASYNC_500US.program], 20) for name in "ab"]
    changes = [
        *(Event(2.0, "set", one.name, now=replace(one, mode="soft")) for one in both),
        Event(4.0, "set", "a", now=replace(both[0], mode="soft", priority="high")),
    ]
    played = world().play(both, 6.0, changes)
    assert [played.share(name, 0.0, 2.0) for name in "ab"] == pytest.approx([20, 20], abs=1.0)
    lent = [played.share(name, 2.0 + _CHANGE, 4.0) for name in "ab"]
    assert lent == pytest.approx([50, 50], abs=1.5)
    assert played.share("a", 4.0 + _CHANGE, 6.0) >= 98.5


def test_a_share_that_is_removed_and_set_again_is_enforced(world):
    """Launches that passed without a share are limited again."""
    container = Container("one", [Program(("--work", "sync", "--kernel-us", "20000"))], 10)
    events = [
        Event(2.0, "set", "one", now=replace(container, share=None)),
        Event(3.0, "set", "one", now=replace(container, share=10)),
    ]
    played = world().play([container], 8.0, events)
    assert played.share("one", 2.2, 3.0) >= 99.0
    assert played.share("one", 3.5, 8.0) == pytest.approx(10, abs=1.0)


@pytest.mark.parametrize("workload", [w.ASYNC_500US, w.ASYNC_50MS], ids=lambda one: one.name)
@pytest.mark.parametrize("mode", ["hard", "soft"])
def test_a_container_that_becomes_active_gets_the_card_soon(world, workload, mode):
    """Four containers always have more work when the last of them begins."""
    early = [Container(f"c{index}", [workload.program], 25, mode) for index in range(3)]
    begin = 2.0
    late = Container("late", [replace(workload.program, begin=begin)], 25, mode)
    played = world().play([*early, late], 4.0)
    first = played.first("late", begin)
    assert first is not None
    assert first <= begin + _GRANT + workload.longest_us / 1e6
