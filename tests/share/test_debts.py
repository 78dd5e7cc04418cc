"""Time that was used too early is paid back, however much it was."""

import math

import pytest

from share import workloads as w
from support.world import Container, Event, Program

#: Blocks of a grid that fills the stub's A100.
_WHOLE_CARD = 108


@pytest.mark.parametrize(
    ("kernel_us", "blocks", "seconds"),
    [
        (1_000_000, 1, 60.0),
        (500_000, _WHOLE_CARD, 170.0),
        (1_000_000, _WHOLE_CARD, 340.0),
    ],
    ids=["beside each other", "8 s of the card", "16 s of the card"],
)
def test_long_kernels_on_sixteen_streams_are_paid_back(world, kernel_us, blocks, seconds):
    """One kernel is admitted on each stream, and no other while a debt is unpaid."""
    waves = Program((seconds, kernel_us, 16, blocks), name="waves")
    played = world().play([Container("alone", [waves], share=10)], seconds)
    # A wave takes ten percent of the time from its beginning to that of the next one. Only whole
    # waves count, because the debt of the last one is not paid at the end.
    wave = 16 * kernel_us / 1e6 if blocks == _WHOLE_CARD else kernel_us / 1e6
    begins = _beginnings(played.history("alone"), pause=1.0)
    assert len(begins) >= 3, begins
    length = (begins[-1] - begins[0]) / (len(begins) - 1)
    assert 100 * wave / length == pytest.approx(10, abs=1.0)


def _beginnings(history, pause):
    """The times at which the card began to work after a pause of this length."""
    found, last = [], -math.inf
    for index, busy in enumerate(history):
        if busy > 0:
            if index / 100 - last > pause:
                found.append(index / 100)
            last = index / 100
    return found


@pytest.mark.parametrize("mode", ["hard", "soft"])
def test_a_kernel_that_is_never_reported_is_paid_for(world, mode):
    """Each process is killed in a kernel far beyond its turn, and the next one starts.

    No account contains their time. A container that keeps others waiting pays for it by the clock.
    A container that waited gets its part, although its neighbour disappears for a moment again and
    again.
    """
    kernel = ("--work", "sync", "--kernel-us", "5000000")
    count, each, kill = 12, 1.0, 0.95
    rude = [Program(kernel, begin=each * index) for index in range(count)]
    kills = [Event(each * index + kill, "kill", "rude", process=index) for index in range(count)]
    both = [
        Container("rude", rude, 50, mode),
        Container("polite", [w.ASYNC_500US.program], 50, mode),
    ]
    played = world().play(both, count * each, kills)
    # It is ahead of its share by its last kernel at most. If not billed, it would have 95 percent.
    assert played.busy("rude") <= 0.5 * count * each + kill
    assert sum(played.launched["polite"][0].values()) > 0
    assert played.busy("polite") >= 0.5 * count * each - kill
