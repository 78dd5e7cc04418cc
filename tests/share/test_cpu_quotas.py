"""Programs and a coordinator that are stopped for a part of each period, as by a CPU quota."""

import pytest

from share import workloads as w
from share.variants import TORTURE
from support.world import Container, Event

_SECONDS = 10.0


def _stops(who, stopped_ms, period_ms):
    """Stops in each period, from the first whole one on."""
    begins = range(period_ms, round(_SECONDS * 1000) - period_ms, period_ms)
    return [
        Event((begin + after) / 1000, do, who)
        for begin in begins
        for do, after in (("stop", 0), ("go on", stopped_ms))
    ]


def _containers(shares, mode):
    return [
        Container(name, [w.ASYNC_500US.program], share, mode)
        for name, share in zip(("first", "second"), shares, strict=True)
    ]


@pytest.mark.parametrize("mode", ["hard", pytest.param("soft", marks=TORTURE)])
@pytest.mark.parametrize("shares", [(30, 70), (70, 30)], ids=str)
@pytest.mark.parametrize(
    ("stopped_ms", "period_ms"),
    [
        (50, 100),
        *(pytest.param(*one, marks=TORTURE) for one in ((20, 100), (80, 100), (5, 10))),
    ],
)
def test_a_program_that_is_stopped_often(world, stopped_ms, period_ms, shares, mode):
    """It costs its neighbour little, although it cannot answer that its turn has ended."""
    stops = _stops("first", stopped_ms, period_ms)
    played = world().play(_containers(shares, mode), _SECONDS, stops)
    assert played.share("second") >= shares[1] - 5
    if mode == "hard":
        assert played.share("second") <= shares[1] + 5
        assert played.share("first") <= shares[0] + 1


@pytest.mark.parametrize("mode", ["hard", pytest.param("soft", marks=TORTURE)])
@pytest.mark.parametrize(
    ("stopped_ms", "period_ms"),
    [(40, 200), *(pytest.param(*one, marks=TORTURE) for one in ((5, 20), (20, 100)))],
)
def test_a_coordinator_that_is_stopped_often(world, stopped_ms, period_ms, mode):
    """Grants end later then, and little of the card's time is lost."""
    stops = _stops("coordinator", stopped_ms, period_ms)
    played = world().play(_containers((30, 70), mode), _SECONDS, stops)
    parts = [played.share(name) for name in ("first", "second")]
    assert sum(parts) >= 93
    assert 100 * parts[0] / sum(parts) == pytest.approx(30, abs=3.0)
