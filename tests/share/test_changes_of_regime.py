"""A second after a change, programs get their part by the new regime, whatever was before.

Time that a program had under the old regime, because it was lent or because there was no share, is
no debt under the new one.
"""

import itertools
from dataclasses import dataclass, replace

import pytest

from share import workloads as w
from share.variants import TORTURE, Mode, thorough
from support.world import Container, Event

#: When the change is; how long a program may take to follow; how long it is measured afterwards.
_CHANGE, _SETTLING, _WATCHED = 6.0, 1.0, 4.0

#: Points.
_ERROR = 2.0


@dataclass(frozen=True)
class Regime:
    """A share and its mode; share None: no limit."""

    share: int | None
    mode: Mode = "hard"

    def __str__(self):
        return "none" if self.share is None else f"{self.share} {self.mode}"

    def container(self, name, programs):
        return Container(name, programs, self.share, self.mode)


_NONE = Regime(None)


def _hard(share):
    return Regime(share)


def _soft(share):
    return Regime(share, "soft")


def _due(one, other):
    """The percentage of a program that always has work, beside another such program or none."""
    if one.mode == "hard" and one.share is not None:
        return one.share
    if other is None:
        return 100
    if other.share is None:
        return 50 if one.share is None else one.share
    if one.share is None or other.mode == "hard":
        return 100 - other.share
    return 100 * one.share / (one.share + other.share)


def _assert_settled(played, due, queued=0.0):
    """``queued``: seconds that the driver needs beyond half a second for what it has already."""
    since = _CHANGE + _SETTLING + queued
    parts = {name: played.share(name, since, since + _WATCHED) for name in due}
    assert parts == pytest.approx(due, abs=_ERROR)


_REGIMES = (_NONE, _hard(10), _hard(20), _hard(60), _soft(20), _soft(60))

#: The regimes before and after, and that of the neighbour.
_CHANGES = [
    (_NONE, _hard(10), _hard(30)),
    (_soft(20), _hard(20), _hard(30)),
    (_hard(10), _soft(60), _soft(40)),
    (_hard(60), _hard(10), _NONE),
]
_FAILING = {
    "a slice pays for what it had queued without a share": [
        (_NONE, after, _NONE) for after in (_hard(10), _hard(20), _soft(20))
    ]
}

_ALL_CHANGES = [
    (before, after, beside)
    for before, after in itertools.permutations(_REGIMES, 2)
    for beside in (_hard(30), _soft(40), _NONE)
]


@pytest.mark.parametrize(
    ("before", "after", "beside"),
    thorough(_CHANGES, _ALL_CHANGES, _FAILING),
    ids=str,
)
def test_a_change_beside_another(world, before, after, beside):
    changed = before.container("changed", [w.ASYNC_500US.program])
    other = beside.container("other", [w.ASYNC_500US.program])
    now = replace(changed, share=after.share, mode=after.mode)
    # Programs without a share have half a second of work in their queues.
    queued = 0.5 if before == beside == _NONE else 0.0
    seconds = _CHANGE + _SETTLING + queued + _WATCHED
    played = world().play([changed, other], seconds, [Event(_CHANGE, "set", "changed", now=now)])
    due = {"changed": _due(after, beside), "other": _due(beside, after)}
    _assert_settled(played, due, queued)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (_NONE, _hard(10)),
        *(
            pytest.param(*one, marks=TORTURE)
            for one in itertools.permutations(_REGIMES, 2)
            if one != (_NONE, _hard(10))
        ),
    ],
    ids=str,
)
def test_a_change_alone(world, before, after):
    """The queue of a program without a share is half a second deep, and is executed first."""
    changed = before.container("changed", [w.ASYNC_500US.program])
    now = replace(changed, share=after.share, mode=after.mode)
    seconds = _CHANGE + _SETTLING + _WATCHED
    played = world().play([changed], seconds, [Event(_CHANGE, "set", "changed", now=now)])
    _assert_settled(played, {"changed": _due(after, None)})


_PAIRS = [(_soft(30), _hard(40)), (_hard(30), _soft(40)), (_NONE, _hard(40)), (_soft(30), _NONE)]

_FEW_OF_ALL = [
    _PAIRS[0],
    *(pytest.param(*pair, marks=TORTURE) for pair in [*_PAIRS[1:], (_soft(30), _soft(60))]),
]


@pytest.mark.parametrize(("stays", "other"), _FEW_OF_ALL, ids=str)
@pytest.mark.parametrize("how", ["leaves", pytest.param("is killed", marks=TORTURE)])
def test_a_neighbour_that_ends(world, stays, other, how):
    program = replace(w.ASYNC_500US.program, end=_CHANGE if how == "leaves" else None)
    containers = [
        stays.container("stays", [w.ASYNC_500US.program]),
        other.container("other", [program]),
    ]
    events = [Event(_CHANGE, "kill", "other")] if how == "is killed" else []
    played = world().play(containers, _CHANGE + _SETTLING + _WATCHED, events)
    _assert_settled(played, {"stays": _due(stays, None), "other": 0})


@pytest.mark.parametrize(("stays", "other"), _FEW_OF_ALL, ids=str)
def test_a_neighbour_that_comes(world, stays, other):
    containers = [
        stays.container("stays", [w.ASYNC_500US.program]),
        other.container("other", [replace(w.ASYNC_500US.program, begin=_CHANGE)]),
    ]
    played = world().play(containers, _CHANGE + _SETTLING + _WATCHED)
    _assert_settled(played, {"stays": _due(stays, other), "other": _due(other, stays)})


@pytest.mark.parametrize(("stays", "other"), _FEW_OF_ALL, ids=str)
def test_a_neighbour_that_comes_back(world, stays, other):
    """Its container has been idle, and the other one has had more of the card meanwhile."""
    program = w.ASYNC_500US.program
    again = [replace(program, end=2.0), replace(program, begin=_CHANGE)]
    containers = [stays.container("stays", [program]), other.container("other", again)]
    played = world().play(containers, _CHANGE + _SETTLING + _WATCHED)
    _assert_settled(played, {"stays": _due(stays, other), "other": _due(other, stays)})
