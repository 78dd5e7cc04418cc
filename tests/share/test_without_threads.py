"""A process that cannot create the meter's thread still keeps to its share.

The thread is refused by a limit on the number of processes, as containers have. The launching
threads then do the meter's work.
"""

import pytest

from share import workloads as w
from support.world import Container, Program


def _without_threads(kit, workload, seconds):
    command = kit.command(workload.program, seconds)
    return Program((kit.own("no_new_threads"), *command), command=True)


@pytest.mark.parametrize(
    "workload",
    [w.ASYNC_50US, w.SYNC, w.ASYNC_50MS, w.STREAMS, w.GRAPH, w.DECODE],
    ids=lambda one: one.name,
)
def test_a_hard_share_holds(world, kit, workload):
    """Every launch was made without admission, and the share was 99 percent instead of 30."""
    alone = Container("alone", [_without_threads(kit, workload, workload.seconds)], share=30)
    played = world().play([alone], workload.seconds)
    assert played.share("alone") == pytest.approx(30, abs=1.0)


def test_it_holds_beside_a_neighbour(world, kit):
    """A process that reports late does not delay its neighbour."""
    containers = [
        Container("late", [_without_threads(kit, w.ASYNC_500US, 6.0)], share=30),
        Container("other", [w.ASYNC_500US.program], share=60),
    ]
    played = world().play(containers, 6.0)
    assert played.share("late") == pytest.approx(30, abs=2.0)
    assert played.share("other") == pytest.approx(60, abs=2.0)


def test_all_its_work_is_billed_at_exit(world, kit):
    alone = Container("alone", [_without_threads(kit, w.SYNC, 2.0)], share=30)
    played = world().play([alone], 2.0)
    assert played.billed["alone"] == pytest.approx(played.busy("alone"), rel=0.02)
