"""Kernels of one container that wait for each other on one card, beside a trainer.

A kernel that waits spins until its partner has been on the engine. So both processes of the
container have the lease together. A container with such kernels must not get more than its share.
"""

from dataclasses import replace

import pytest

from share import workloads as w
from share.variants import MODES, varied
from support.world import Container, Event, Program

_SECONDS = 10.0


def _exchanges(played):
    """The exchanges of the process that has launched less."""
    return min(sum(kernels.values()) for kernels in played.launched["job"])


@pytest.mark.parametrize(
    ("us", "kernels", "share", "mode", "neighbours"),
    varied(
        [(500, 1, 50, "hard", 1)],
        (50, 500),
        (1, 8),
        (30, 50, 80),
        MODES,
        (0, 1, 2),
    ),
)
def test_an_exchange_takes_twice_as_long_as_its_share_makes_it_at_most(
    world, *, us, kernels, share, mode, neighbours
):
    ranks = [Program((us, kernels), name="exchange")] * 2
    containers = [
        Container("job", ranks, share, mode),
        *(
            Container(f"busy{index}", [w.ASYNC_500US.program], (100 - share) // neighbours, mode)
            for index in range(neighbours)
        ),
    ]
    end = [Event(_SECONDS, "kill", "job")]
    bare = [replace(one, share=None, bare=True) for one in containers]
    without = _exchanges(world().play(bare, _SECONDS, end))
    played = world().play(containers, _SECONDS, end)
    # A program that has the whole card without us needs 100 / share times as long with its share.
    assert _exchanges(played) >= without * min(1 / 3, share / 200)
    # The turn of the container is billed for both.
    if neighbours:
        assert played.share("job") <= share + 2


_PAIR_US = (400, 500, 600, 700, 800, 900, 1_000, 1_200, 1_500, 2_000, 2_500)


@pytest.mark.parametrize(
    ("us", "share", "way"),
    varied(
        [(600, 1, "processes"), (1_500, 20, "processes"), (800, 5, "streams")],
        _PAIR_US,
        (1, 5, 20),
        ("processes", "streams"),
    ),
)
def test_kernels_that_meet_get_no_more_than_their_share(world, us, share, way):
    """They had 98 percent of the card at a share of 1, because a stall went before every debt."""
    pairs = Program((1_000_000, f"swap_{us}us_meets2_streams", 0), name="null_between")
    ranks = [Program((us, 1), name="exchange")] * 2
    job = Container("job", [pairs] if way == "streams" else ranks, share)
    busy = Container("busy", [w.ASYNC_500US.program], 79)
    seconds = 16.0
    played = world().play([job, busy], seconds, [Event(seconds, "kill", "job")])
    assert played.share("job", 1.0, seconds) <= share + 2
    assert played.share("busy", 1.0, seconds) >= 77
