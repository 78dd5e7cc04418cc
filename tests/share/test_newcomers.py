"""A container without a share does not fill the card's queue before those with a share."""

from dataclasses import replace

import pytest

from share import workloads as w
from share.workloads import Workload
from support.world import Container, Program

#: Seconds until a newcomer has its first turn. The longest kernel that is running adds to this.
_GRANT = 0.05

#: Seconds of engine time that an idle container saves up.
_SAVED = 0.1


def _named(value):
    return value.name if isinstance(value, Workload) else str(value)


@pytest.mark.parametrize("workload", [w.ASYNC_20US, w.ASYNC_500US, w.ASYNC_5MS], ids=_named)
def test_an_idle_container_with_a_share_costs_no_work(world, workload):
    """Launches are metered then, and few are in flight."""
    seconds = 3.0
    bare = world().play([replace(workload.alone(None, bare=True), name="free")], seconds)
    idle = Container("idle", [w.IDLE], 30)
    held = world().play([Container("free", [workload.program]), idle], seconds)
    # The idle one has had a kernel at the start.
    assert held.busy("free", 0.5, seconds) >= 0.995 * bare.busy("free", 0.5, seconds)
    # Otherwise the test would show nothing.
    assert held.billed["free"] >= 0.99 * held.busy("free") - 0.5


def test_containers_without_a_share_divide_the_card_as_without_us(world):
    workloads = [w.ASYNC_20US, w.ASYNC_500US, w.ASYNC_5MS]
    bare = [Container(f"c{i}", [one.program], bare=True) for i, one in enumerate(workloads)]
    idle = Container("idle", [w.IDLE], 30)
    free = [replace(one, bare=False) for one in bare]
    without = world().play(bare, 4.0)
    beside = world().play([*free, idle], 4.0)
    parts = [[played.share(one.name, 1.0) for one in bare] for played in (without, beside)]
    assert parts[1] == pytest.approx(parts[0], abs=2.0)
    assert sum(parts[1]) >= 0.995 * sum(parts[0])


def _until_busy(played, name, begin, seconds):
    """Seconds from an instant until a container has had this much engine time."""
    had = 0.0
    buckets = played.history(name)[round(begin * 100) :]
    for index, spent in enumerate(buckets):
        had += spent
        if had >= seconds - 1e-9:
            return (index + 1) / 100
    raise AssertionError(f"{name} never had {seconds} s")


@pytest.mark.parametrize("workload", [w.ASYNC_500US, w.ASYNC_5MS, w.ASYNC_50MS], ids=_named)
@pytest.mark.parametrize("already", [1, 2, 3])
def test_a_container_that_starts_beside_programs_without_a_share(world, workload, already):
    early = [Container(f"c{index}", [workload.program]) for index in range(already)]
    begin = 2.0
    late = [w.IDLE, replace(w.ASYNC_5MS.program, begin=begin)]
    played = world().play([*early, Container("late", late, 40)], 7.0)
    first = _until_busy(played, "late", begin, 0.005)
    assert first <= _GRANT + workload.longest_us / 1e6 + 0.005
    # Kernels of 50 ms that were launched before drain at first, and the driver shares the card.
    settled = begin + (1.5 if workload is w.ASYNC_50MS else 0.5)
    share = played.share("late", settled)
    assert 39.0 <= share <= 41.0 + 100 * _SAVED / (7.0 - settled)


_QUEUE = ("--work", "async", "--kernel-us", 10_000, "--queue-ms", 5000)


def test_a_queue_from_before_the_first_share(world):
    """Five seconds of kernels that were launched before a container with a share was active.

    While they last, the driver divides the card, and the newcomer is billed for the time that its
    kernels take then. So it has about half of its share, from the first kernel on.
    """
    free = Container("free", [Program(_QUEUE, end=0.002)])
    begin = 1.0
    late = Container("late", [replace(w.ASYNC_5MS.program, begin=begin)], 30)
    played = world().play([free, late], 20.0)
    assert _until_busy(played, "late", begin, 0.005) <= _GRANT + 0.01
    # The whole queue is executed, without a pause.
    launched = played.said["free"][0]["launched"]
    assert launched >= 500
    assert played.busy("free") == pytest.approx(0.01 * launched, abs=0.001)
    done = _until_busy(played, "free", 0.0, 0.01 * launched)
    assert done <= 6.5
    assert played.share("late", begin, done) == pytest.approx(16, abs=2.0)
    assert played.share("late", done + 0.1) == pytest.approx(30, abs=1.0)


def test_a_queue_from_before_whose_owner_continues(world):
    """Its later launches are behind its queue; the newcomer does not wait for them."""
    free = Container("free", [Program(_QUEUE)])
    begin = 1.0
    late = Container("late", [replace(w.ASYNC_5MS.program, begin=begin)], 30)
    played = world().play([free, late], 20.0)
    assert _until_busy(played, "late", begin, 0.005) <= _GRANT + 0.01
    # Five seconds of work at 80 percent of the card, beginning at the start.
    backlog = [played.share("late", at, at + 1.0) for at in (1.0, 2.0, 3.0, 4.0)]
    # In the first second, the newcomer uses the tenth of a second that it has saved up.
    assert all(
        12 <= part <= 31 + saved for part, saved in zip(backlog, (10, 0, 0, 0), strict=True)
    ), backlog
    parts = [played.share(name, 7.0) for name in ("late", "free")]
    assert parts == pytest.approx([30, 70], abs=1.0)


@pytest.mark.parametrize("workload", [w.ASYNC_500US, w.ASYNC_5MS], ids=_named)
def test_after_each_long_pause(world, workload):
    """20 ms of work, and then 380 ms of nothing, in which the other does not fill its queue."""
    bursts = ("--work", "bursty", "--kernel-us", 500, "--busy-percent", 5, "--period-us", 400_000)
    capped = Container("capped", [Program(bursts)], 30)
    played = world().play([capped, Container("free", [workload.program])], 8.0)
    late = played.said["capped"][0]["late_ns"]
    # The first burst may have to wait for work that was queued before it.
    assert len(late) == 20
    assert max(late[1:]) <= 1e9 * _GRANT + 1e3 * workload.longest_us
    assert played.share("capped") + played.share("free") >= 98.5


@pytest.mark.parametrize("already", [1, 3])
def test_a_queue_of_half_a_second_from_each_before(world, already):
    """Most programs queue this much. The newcomer's first kernel is one of several on the card."""
    early = [Container(f"c{index}", [w.ASYNC_5MS.program]) for index in range(already)]
    begin = 2.0
    late = Container("late", [replace(w.ASYNC_5MS.program, begin=begin)], 40)
    played = world().play([*early, late], 10.0)
    first = _until_busy(played, "late", begin, 0.005)
    assert first <= _GRANT + 0.01
    assert played.share("late", 6.0) == pytest.approx(40, abs=1.0)
