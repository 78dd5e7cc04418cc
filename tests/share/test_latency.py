"""Programs that do not always have work for the card get it soon when they do.

An interactive program launches little, waits, and pauses. It may use the unused part of its share
later, and its neighbours must not hold the card when it returns.
"""

import pytest

from share import workloads as w
from share.interactive import DECODE, SECONDS, p95_ms, server, step_ms, without_us
from share.variants import TORTURE, varied
from support.world import Container, Program


@pytest.mark.parametrize(
    ("trainer", "count"),
    varied([(w.ASYNC_500US, 1), (w.ASYNC_500US, 2)], (w.ASYNC_50US, w.ASYNC_500US), (1, 2, 3)),
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_short_steps_beside_trainers(world, trainer, count):
    """With equal soft shares, the driver divides the card as without us."""
    share = 100 // (count + 1)
    trainers = [
        Container(f"trainer{index}", [trainer.program], share, "soft") for index in range(count)
    ]
    containers = [Container("decode", [DECODE.program], share, "soft"), *trainers]
    bare = world().play(without_us(containers), SECONDS)
    held = world().play(containers, SECONDS)
    assert step_ms(held.said["decode"][0]) <= 1.1 * step_ms(bare.said["decode"][0])
    assert held.share("decode") >= 0.97 * bare.share("decode")
    assert _together(held, containers) >= 0.98 * _together(bare, containers)


def test_short_steps_of_a_high_priority_beside_a_trainer(world):
    containers = [
        Container("decode", [DECODE.program], 50, "soft", "high"),
        Container("trainer", [w.ASYNC_500US.program], 50, "soft"),
    ]
    bare = world().play(without_us(containers), SECONDS)
    held = world().play(containers, SECONDS)
    assert step_ms(held.said["decode"][0]) <= 1.2 * step_ms(bare.said["decode"][0])
    assert _together(held, containers) >= 88


@pytest.mark.parametrize(
    "kernel_ms", [11, 200, *(pytest.param(ms, marks=TORTURE) for ms in (5, 20, 50))]
)
@pytest.mark.parametrize(("share", "priority", "least"), [(50, "normal", 0.97), (80, "high", 0.85)])
def test_short_steps_beside_long_kernels(world, kernel_ms, share, priority, least):
    """A program that returned behind each long kernel got 7 percent of the card instead of 42."""
    trainer = Program(("--work", "async", "--kernel-us", 1_000 * kernel_ms))
    containers = [
        Container("decode", [DECODE.program], share, "soft", priority),
        Container("trainer", [trainer], 100 - share, "soft"),
    ]
    bare = world().play(without_us(containers), SECONDS)
    held = world().play(containers, SECONDS)
    assert held.share("decode", 1.0) >= least * bare.share("decode", 1.0)
    assert _together(held, containers) >= least * _together(bare, containers)


@pytest.mark.parametrize("count", [4, pytest.param(2, marks=TORTURE)])
def test_programs_with_short_steps_beside_each_other(world, count):
    """Together they have more work than the card can do, and each pauses often."""
    share = 100 // count
    containers = [
        Container(f"decode{index}", [DECODE.program], share, "soft") for index in range(count)
    ]
    played = world().play(containers, SECONDS)
    bare = world().play(without_us(containers), SECONDS)
    assert _together(played, containers) >= 0.98 * _together(bare, containers)
    assert min(played.share(one.name) for one in containers) >= 0.9 * share


@pytest.mark.parametrize("mode", ["hard", pytest.param("soft", marks=TORTURE)])
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=TORTURE) for seed in range(2, 9))])
def test_a_server_alone_with_requests_below_its_share(world, seed, mode):
    """The quiet time before a burst of requests has saved the credit for it."""
    seconds = 60.0
    alone = Container("server", [server(seconds, seed)], 50, mode)
    bare = world().play(without_us([alone]), seconds)
    held = world().play([alone], seconds)
    assert p95_ms(held.said["server"][0]) <= 2 * p95_ms(bare.said["server"][0])
    assert held.busy("server", 0.0, 100.0) == pytest.approx(bare.busy("server", 0.0, 100.0))


@pytest.mark.parametrize("mode", ["hard", pytest.param("soft", marks=TORTURE)])
@pytest.mark.parametrize(
    "seed", [2, 4, *(pytest.param(seed, marks=TORTURE) for seed in (3, 5, 7, 8))]
)
def test_a_server_beside_a_trainer(world, seed, mode):
    """Not with seed 6: its requests take the whole share for three seconds."""
    containers = [
        Container("server", [server(SECONDS, seed)], 50, mode),
        Container("trainer", [w.ASYNC_500US.program], 50, mode),
    ]
    bare = world().play(without_us(containers), SECONDS)
    held = world().play(containers, SECONDS)
    assert p95_ms(held.said["server"][0]) <= 0.5 * p95_ms(bare.said["server"][0])
    assert held.share("trainer") >= 48


@pytest.mark.parametrize("us", [5_000, *(pytest.param(us, marks=TORTURE) for us in (500, 20_000))])
def test_frames_of_a_program_with_more_share_than_it_needs(world, us):
    """30 frames a second need 9 % of the card. It pays for its neighbour's kernels beside its own.

    docs/configuration.md says by how much the share has to exceed the need.
    """
    period_us = 33_333
    video = ("--work", "bursty", "--kernel-us", 500, "--busy-percent", 9, "--period-us", period_us)
    trainer = Program(("--work", "async", "--kernel-us", us))
    both = [Container("video", [Program(video)], 16, "soft"), Container("t", [trainer], 84, "soft")]
    late = world().play(both, SECONDS).said["video"][0]["late_ns"]
    assert len(late) == 301
    assert max(late) < 1000 * period_us


def _together(played, containers):
    """Percent of the card that they have, without their first second."""
    return sum(played.share(one.name, 1.0) for one in containers)
