"""Kernels of one process that wait for each other's launch, beside another active container."""

import pytest

from share import workloads as w
from support.world import Container, Program

#: Microseconds from one launch to its partner's: within a turn, and past the end of one.
_PAUSES = (100, 30_000)


@pytest.mark.parametrize("pause_us", _PAUSES)
@pytest.mark.parametrize("cards", [(0, 0), (0, 1)], ids=["two streams", "two cards"])
@pytest.mark.parametrize("neighbour", [True, False], ids=["in company", "alone"])
def test_a_launch_that_a_running_kernel_waits_for_is_made(world, pause_us, cards, *, neighbour):
    """The first runs until the second does, even if its turn ends long before that."""
    seconds = 5.0
    kernels = Program((seconds, 500, pause_us, *cards), name="dependent_kernels")
    containers = [Container("kernels", [kernels], 50)]
    if neighbour:
        containers.append(Container("other", [w.ASYNC_500US.program], 50))
    played = world(cards="a100,a100").play(containers, seconds)
    (said,) = played.said["kernels"]
    assert said, "it never came to its end"
    # A launch whose partner runs waits for a second at most before it asks for a turn.
    assert said["completed"] >= 3
    if neighbour:
        assert played.busy("other") > 0
