"""A loop of short programs gets no more than one long program: later ones pay for earlier ones.

A killed process cannot bill its last work, and the next process starts with a new bucket.
"""

import pytest

from share import workloads as w
from support.world import Container, Program


def _loop(kernel_us, end, seconds):
    return Program((seconds, kernel_us, end), name="successive")


#: The kernel of the last program may not be paid yet. In this time it is half a point.
@pytest.mark.parametrize(
    ("kernel_us", "seconds", "end", "share", "coordinator"),
    [
        *((200_000, 40.0, end, 10, True) for end in ("exit", "_exit", "kill")),
        *((20_000, 10.0, end, 10, True) for end in ("exit", "_exit", "kill")),
        (200_000, 40.0, "exit", 30, True),
        *((200_000, 40.0, "exit", share, False) for share in (10, 30)),
    ],
)
def test_alone(world, *, kernel_us, seconds, end, share, coordinator):
    """Each program begins with the debt of those before it, also without a coordinator."""
    loop = Container("loop", [_loop(kernel_us, end, seconds)], share)
    played = world(coordinator=coordinator).play([loop], seconds)
    assert played.share("loop") == pytest.approx(share, abs=1.0)
    if end == "exit":
        used = played.said["loop"][0]["completed"] * kernel_us / 1e6
        assert played.billed["loop"] == pytest.approx(used, rel=0.01)


@pytest.mark.parametrize("end", ["exit", "kill"])
def test_beside_another(world, end):
    seconds = 20.0
    loop = Container("loop", [_loop(200_000, end, seconds)], 10)
    half = Container("half", [w.ASYNC_500US.program], 50)
    played = world().play([loop, half], seconds)
    parts = [played.share(name) for name in ("loop", "half")]
    assert parts == pytest.approx([10, 50], abs=1.0)
