"""Unusual ways to launch, under which a share is as exact as under the usual ones."""

import pytest

from share import workloads as w
from share.variants import varied
from support.world import Container, Program

_SECONDS = 10.0

#: Points.
_ERROR = 1.0

#: Blocks of a grid that fills the stub's A100.
_WHOLE_CARD = 108

#: The share of a neighbour that always has work; None: there is no neighbour.
_BESIDE = (None, "the rest", "ten less")


def _containers(program, share, beside, **options):
    first = Container("first", [program], share, **options)
    rest = {None: 0, "the rest": 100 - share, "ten less": 90 - share}[beside]
    busy = [Container("busy", [w.ASYNC_500US.program], rest)] if rest > 0 else []
    return [first, *busy]


def _assert_exact(played, containers):
    parts = [played.share(one.name) for one in containers]
    assert parts == pytest.approx([one.share for one in containers], abs=_ERROR)


@pytest.mark.parametrize(
    ("us", "share", "beside"),
    varied(
        [(20_000, 30, None), (1_000, 30, None), (1_000, 30, "the rest")],
        (20, 100, 1_000, 5_000, 20_000),
        (10, 30, 75),
        _BESIDE,
    ),
)
def test_launches_that_return_when_their_kernel_has_ended(world, us, share, beside):
    """With CUDA_LAUNCH_BLOCKING=1. The time in a call is not idle time.

    Any program can set the variable, so it must not turn a share off.
    """
    program = Program(("--work", "async", "--kernel-us", us))
    blocking = {"CUDA_LAUNCH_BLOCKING": "1"}
    containers = _containers(program, share, beside, variables=blocking)
    _assert_exact(world().play(containers, _SECONDS), containers)


@pytest.mark.parametrize(
    ("threads", "us", "blocks", "share", "beside"),
    varied(
        [(64, 5_000, _WHOLE_CARD, 50, "the rest"), (64, 5_000, _WHOLE_CARD, 50, None)],
        (17, 64),
        (5_000,),
        (1, _WHOLE_CARD),
        (10, 50, 75),
        _BESIDE,
    ),
)
def test_many_threads_with_default_streams_of_their_own(
    world, *, threads, us, blocks, share, beside
):
    options = (threads, 1, us, blocks, 4, 0, "default")
    program = Program((_SECONDS, *options), name="threads")
    containers = _containers(program, share, beside)
    _assert_exact(world().play(containers, _SECONDS), containers)


@pytest.mark.parametrize(
    ("us", "share", "beside"),
    varied(
        [(500, 40, None), (500, 10, "the rest"), (5_000, 40, None)],
        (20, 500, 5_000),
        (10, 40, 75),
        _BESIDE,
    ),
)
def test_launches_into_a_stream_of_a_context_that_is_not_current(world, us, share, beside):
    containers = _containers(Program((_SECONDS, us), name="not_current"), share, beside)
    _assert_exact(world().play(containers, _SECONDS), containers)
