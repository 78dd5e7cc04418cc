"""One container alone gets its share of the card's time, for every workload."""

import statistics

import pytest

from share import workloads as w
from share.workloads import Workload
from support.world import Container, Event, Program

#: Each workload under two caps, so that each cap is tested; `make bench` has all of them.
MATRIX = [
    (w.ASYNC_50US, 10),
    (w.ASYNC_50US, 75),
    (w.SYNC, 25),
    (w.SYNC, 90),
    (w.GRAPH, 30),
    (w.GRAPH, 50),
    (w.ASYNC_50MS, 10),
    (w.ASYNC_50MS, 50),
    (w.ASYNC_50MS, 90),
    (w.STREAMS, 50),
    (w.STREAMS, 90),
    (w.COPIES, 25),
    (w.COPIES, 75),
    (w.DECODE, 10),
    (w.DECODE, 30),
    (w.ASYNC_5MS, 75),
    (w.COOPERATIVE, 50),
    (w.EXTENDED, 30),
]


def _named(value):
    return value.name if isinstance(value, Workload) else str(value)


@pytest.mark.parametrize(("workload", "cap"), MATRIX, ids=_named)
def test_share(world, workload, cap):
    """Within one point. Many seconds of the virtual clock: the error is that of a long run."""
    played = world().play([workload.alone(cap)], workload.seconds)
    assert played.share("alone") == pytest.approx(cap, abs=1.0)


@pytest.mark.parametrize("workload", [w.ASYNC_50US, w.SYNC, w.ASYNC_5MS], ids=_named)
def test_windows_of_a_second(world, workload):
    """95 of 100 windows of a second are within 2 points."""
    played = world().play([workload.alone(30)], 20.0)
    off = sorted(abs(window - 30) for window in played.windows("alone"))
    assert len(off) == 20
    assert off[-2] <= 2.0, off


@pytest.mark.parametrize("cap", [25, 50])
def test_bursts_below_the_share_are_not_slowed(world, cap):
    bare = world().play([w.BURSTY.alone(None, bare=True)], w.BURSTY.seconds)
    held = world().play([w.BURSTY.alone(cap)], w.BURSTY.seconds)
    assert _burst_ns(held) <= 1.01 * _burst_ns(bare)


def _burst_ns(played):
    """The mean time from the beginning of a period to the end of its work."""
    (said,) = played.said["alone"]
    return said["work_ns"] / len(said["late_ns"]) + statistics.mean(said["late_ns"])


@pytest.mark.parametrize("share", [None, 100])
def test_the_whole_card_costs_no_work(world, share):
    bare = world().play([w.ASYNC_50US.alone(None, bare=True)], w.ASYNC_50US.seconds)
    held = world().play([w.ASYNC_50US.alone(share)], w.ASYNC_50US.seconds)
    assert held.busy("alone") >= 0.995 * bare.busy("alone")


def test_a_kernel_of_two_seconds_is_paid_back(world):
    """At 25 percent, six idle seconds follow each kernel, and the account shows the debt."""
    program = Program(("--work", "sync", "--kernel-us", "2000000"))
    looks = [Event(2.1, "look", "alone"), Event(7.9, "look", "alone")]
    played = world().play([Container("alone", [program], share=25)], 82.0, looks)
    assert played.share("alone", 0.0, 80.0) == pytest.approx(25, abs=1.0)
    at_its_end, paid = (_debt_ns(look) for look in played.looks["alone"])
    assert 1.3e9 <= at_its_end <= 1.6e9
    assert paid <= 0.1e9


def _debt_ns(look):
    return sum(process["debt_ns"][0] for process in look["processes"])


def test_ten_processes_of_a_container_share_its_share(world):
    ten = Container("ten", [w.ASYNC_500US.program] * 10, share=30)
    played = world().play([ten], 15.0)
    # The driver itself takes 2.4 % of the time to change between their contexts.
    assert played.share("ten") == pytest.approx(30 * 0.976, abs=1.0)
    # The driver divides the time of the container among them.
    parts = [played.busy("ten", process=index) for index in range(10)]
    assert jain(parts) >= 0.95, parts


def jain(parts):
    """Jain's index: 1 where all are equal."""
    return sum(parts) ** 2 / (len(parts) * sum(part * part for part in parts))
