"""A program that writes false things into its own account harms no other, and gains nothing.

docs/security.md names the lies that do cost a neighbour time.

The account is the tenant's own file. For the coordinator, the reports of work and engine time in it
are hints at most.
"""

from itertools import product

import pytest

from share import workloads as w
from share.interactive import DECODE
from share.variants import MODES, TORTURE, varied
from support.world import Container, Event, Program

#: All windows of this many seconds are compared.
_WINDOW, _SECONDS = 10.0, 12.0

#: Points that others may lose, and that a liar may gain.
_LOSS, _GAIN = 3.0, 2.0

_LIES = ("waits", "runs", "idle", "wants", "all", "unused")

#: Microseconds of the kernels of the liar; 0: it launches none.
_KERNELS = (0, 500, 100_000)

_SOME = [
    ("waits", 0, 50, "soft"),
    ("wants", 0, 80, "hard"),
    ("unused", 500, 50, "hard"),
    ("idle", 100_000, 80, "soft"),
]

#: docs/security.md has what each lie costs the neighbour.
_FAILING = {
    "the driver shares the card, or the card is idle": [
        *product(("waits",), (100_000,), (80,), MODES),
        ("waits", 100_000, 50, "hard"),
        *product(("all",), (100_000,), (50,), MODES),
        ("idle", 100_000, 50, "soft"),
        ("runs", 500, 80, "hard"),
        ("runs", 100_000, 80, "hard"),
    ]
}


def _windows(played, name):
    begins = range(int(_SECONDS - _WINDOW) + 1)
    return [played.share(name, begin, begin + _WINDOW) for begin in begins]


@pytest.mark.parametrize(
    ("lie", "us", "honest", "mode"),
    varied(_SOME, _LIES, _KERNELS, (80, 50), MODES, failing=_FAILING),
)
def test_an_honest_trainer_beside_a_liar(world, lie, us, honest, mode):
    """A liar may wait for ever for the card, because of its own report."""
    containers = [
        Container("liar", [Program((_SECONDS, lie, us), name="liar")], 100 - honest, mode),
        Container("honest", [w.ASYNC_500US.program], honest, mode),
    ]
    played = world().play(containers, _SECONDS)
    # Otherwise the test would show nothing.
    assert us == 0 or played.busy("liar") > 0
    assert min(_windows(played, "honest")) >= honest - _LOSS
    assert max(_windows(played, "liar")) <= 100 - honest + _GAIN


@pytest.mark.parametrize("us", [500, pytest.param(100_000, marks=TORTURE)])
def test_a_liar_alone(world, us):
    """False reports of its engine time do not raise its share either."""
    liar = Container("liar", [Program((_SECONDS, "unused", us), name="liar")], 30)
    played = world().play([liar], _SECONDS, [Event(_SECONDS - 1, "look", "liar")])
    assert max(_windows(played, "liar")) <= 30 + _GAIN
    # Otherwise the test would show nothing.
    assert played.busy("liar") > 1.0
    assert played.looks["liar"][0]["used_ns"][0] < 0.2e9


@pytest.mark.parametrize(
    ("lie", "count", "beside"),
    [
        ("runs", 4, "nobody"),
        ("wants", 2, "a trainer"),
        *(
            pytest.param(*one, marks=TORTURE)
            for one in product(_LIES, (1, 4, 16), ("nobody", "a decode", "a trainer"))
            if one not in {("runs", 4, "nobody"), ("wants", 2, "a trainer")}
        ),
    ],
)
def test_idle_liars_raise_no_ceiling(world, lie, count, beside):
    """Each idle slice that reported work multiplied the share of a friend with a hard one."""
    others = {
        "nobody": [],
        "a decode": [Container("other", [DECODE.program], 50, "soft")],
        "a trainer": [Container("other", [w.ASYNC_500US.program], 80)],
    }
    seconds = 20.0
    liars = [
        Container(f"liar{index}", [Program((seconds, lie, 0), name="liar")], 1, "soft")
        for index in range(count)
    ]
    friend = Container("friend", [w.ASYNC_500US.program], 10)
    played = world().play([friend, *liars, *others[beside]], seconds)
    # Until second 5, others wait for the work that is reported.
    assert played.share("friend", 6.0) == pytest.approx(10, abs=1.0)
