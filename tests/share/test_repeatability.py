"""A world on the virtual clock is the same each time; one on the real clock is only reported."""

import pytest

from share import workloads as w
from support.world import Container, Event


def _comparable(played):
    said = {
        name: [{key: value for key, value in one.items() if key != "pid"} for one in group]
        for name, group in played.said.items()
    }
    return said, played.launched, [played.history(name) for name in played.said]


def test_two_runs_are_the_same(world):
    def run():
        containers = [
            Container("a", [w.ASYNC_500US.program] * 2, 30, "soft"),
            Container("b", [w.ASYNC_5MS.program], 50, "soft"),
            Container("c", [w.BURSTY.program], 20),
        ]
        stop = [Event(1.0, "stop", "b"), Event(1.5, "go on", "b")]
        return _comparable(world(late_us=60).play(containers, 3.0, stop))

    assert run() == run()


def test_without_us_programs_get_equal_parts(world):
    """The card divides itself in this way, so the other tests show what the library does."""
    containers = [
        Container("a", [w.ASYNC_500US.program] * 2, bare=True),
        Container("b", [w.ASYNC_5MS.program], bare=True),
    ]
    played = world().play(containers, 3.0)
    parts = [played.share("a"), played.share("b")]
    assert parts == pytest.approx([200 / 3, 100 / 3], abs=3.0)
    # Switching between programs costs as well.
    assert 95.0 <= sum(parts) < 100.0


@pytest.mark.alone
def test_the_same_containers_run_on_the_real_clock(world):
    containers = [Container(name, [w.ASYNC_500US.program], 50) for name in "ab"]
    played = world(clock="real").play(containers, 1.0)
    assert all(played.launched[name][0] for name in "ab")
    assert all(said["completed"] > 0 for group in played.said.values() for said in group)
    # The library was loaded, and metered them.
    assert all(played.billed[name] > 0 for name in "ab")
