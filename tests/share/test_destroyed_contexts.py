"""Contexts that end with work in flight: no program hangs, and all work is billed."""

import pytest

from support.world import Container, Program

_SHARE, _SECONDS = 30, 4.0


@pytest.mark.parametrize("how", ["destroy", "reset", "release"])
@pytest.mark.parametrize("kernel_us", [100, 5_000])
def test_contexts_ended_with_work_in_flight(world, how, kernel_us):
    """The share is not exceeded. It may not be reached: the driver cannot time such kernels."""
    ends = Program((_SECONDS, kernel_us, how), name="ends")
    played = world().play([Container("alone", [ends], share=_SHARE)], _SECONDS)
    (said,) = played.said["alone"]
    assert said["launches"] == sum(played.launched["alone"][0].values())
    assert said["ended"] >= 10
    assert played.share("alone") <= _SHARE + 1.0


@pytest.mark.parametrize("how", ["destroy", "reset", "release"])
def test_contexts_ended_beside_a_neighbour(world, how):
    """A program that destroys its contexts gets no more than its part; the other gets the rest."""
    both = [
        Container("ends", [Program((_SECONDS, 1_000, how), name="ends")], 50),
        Container("stays", [Program(("--work", "async", "--kernel-us", "500"))], 50),
    ]
    played = world().play(both, _SECONDS)
    (said,) = played.said["ends"]
    assert said["ended"] >= 10
    assert played.share("ends") <= 51.0
    assert played.share("stays") >= 48.0
