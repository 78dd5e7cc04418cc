"""Two processes of one container whose kernels wait for each other on one card, beside a trainer.

A kernel that waits spins until its partner has been on the engine. So the container's turn has to
be the turn of both of its processes.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from share import workloads as w
from share.variants import MODES, Mode, varied
from support.engine_time import Played
from support.world import Container, Event, Program, World

Worlds = Callable[..., World]

_SECONDS = 10.0


def _exchanges(played: Played) -> int:
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
def test_an_exchange_takes_three_times_as_long_as_without_us_at_most(
    world: Worlds, *, us: int, kernels: int, share: int, mode: Mode, neighbours: int
) -> None:
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
    assert _exchanges(played) >= without / 3
    # The turn of the container is billed for both.
    if neighbours:
        assert played.share("job") <= share + 2
