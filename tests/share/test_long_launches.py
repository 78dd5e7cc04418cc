"""A program that launches long kernels ahead takes no more from its neighbour than one of them.

The time of its first kernel is not known while the kernel runs. A program once made more and more
launches meanwhile, because the kernel might have waited for them. Then its neighbour got nothing
for four seconds. Whether it did depended on the length of the kernels, so the tests scan lengths.
"""

import pytest

from share import workloads as w
from share.variants import MODES, TORTURE, varied
from support.world import Container, Program

_SECONDS = 6.0

#: The driver's queue holds this much work in milliseconds.
_QUEUE = ("--queue-ms", 5000)

_LENGTHS = (
    *(1, 2, 5, 10, 15, 20, 25, 30, 35, 38, 40, 42, 44, 46, 50, 55, 60, 65, 70, 75, 80, 83, 85, 88),
    *(90, 92, 95, 100, 105, 110, 115, 120, 130, 140, 150, 160, 165, 180, 200, 230, 260, 300, 350),
    400,
)


def _kernels(ms):
    return Program(("--work", "async", "--kernel-us", 1000 * ms, *_QUEUE))


def _graphs(ms):
    """A graph of twenty kernels is one launch."""
    return Program(("--work", "graph", "--kernel-us", 50 * ms, "--chain", 20, *_QUEUE))


_HOW = {"kernels": _kernels, "graphs": _graphs}


def _least(played, name):
    """The smallest part of any second, from the start on, in percent."""
    spent = played.history(name)
    return min(100 * sum(spent[first : first + 100]) for first in range(len(spent) - 99))


@pytest.mark.parametrize(
    ("how", "ms", "processes", "mode"),
    varied(
        [
            ("kernels", 42, 1, "hard"),
            ("kernels", 90, 2, "hard"),
            ("kernels", 120, 1, "soft"),
            ("graphs", 100, 2, "soft"),
            ("graphs", 150, 1, "hard"),
        ],
        tuple(_HOW),
        _LENGTHS,
        (1, 2),
        MODES,
    ),
)
def test_a_neighbour_of_long_launches(world, how, ms, processes, mode):
    both = [
        Container("long", [_HOW[how](ms)] * processes, 20, mode),
        Container("neighbour", [w.ASYNC_500US.program], 79, mode),
    ]
    played = world().play(both, _SECONDS)
    # One launch of each process cannot be interrupted.
    assert _least(played, "neighbour") >= min(60, 93 - processes * ms / 10)
    # Its last launch may not be paid yet.
    assert played.share("long") <= 20 + processes * ms / 10 / _SECONDS + 1


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=TORTURE)])
@pytest.mark.parametrize("mode", ["soft", pytest.param("hard", marks=TORTURE)])
def test_training_steps_of_one_graph_each(world, mode, processes):
    both = [
        Container("training", [_graphs(90)] * processes, 50, mode),
        Container("neighbour", [w.ASYNC_500US.program], 50, mode),
    ]
    played = world().play(both, _SECONDS)
    assert _least(played, "neighbour") >= 48 - 4.5 * processes
    # The last graphs may not be paid yet.
    assert played.share("neighbour") == pytest.approx(50, abs=0.5 + processes * 9 / _SECONDS)


@pytest.mark.parametrize(
    "kernels_us",
    [
        "1000,200000",
        *(
            pytest.param(each, marks=TORTURE)
            for each in (
                "90000,100",
                "90000" + 5 * ",100",
                "90000" + 8 * ",2000",
                "90000" + 12 * ",2000",
                "90000,91000",
                "42000,43000,44000",
            )
        ),
    ],
)
def test_long_launches_among_short_ones(world, kernels_us):
    """As in a training step: a graph, and some kernels behind it."""
    mixed = Program(("--work", "async", "--kernel-us", kernels_us, *_QUEUE))
    both = [
        Container("mixed", [mixed], 20),
        Container("neighbour", [w.ASYNC_500US.program], 79),
    ]
    played = world().play(both, _SECONDS)
    assert _least(played, "neighbour") >= 60


def _different(count, ms, how, before):
    return Program((_SECONDS, count, 1000 * ms, how, before), name="different")


_COUNTS = (2, 3, 4, 6, 8, 12, 16)


@pytest.mark.parametrize(
    ("how", "count", "ms", "processes", "before"),
    varied(
        [
            ("kernels", 8, 90, 1, 0),
            ("graphs", 16, 200, 1, 0),
            ("kernels", 4, 40, 2, 0),
            ("graphs", 8, 90, 2, 1000),
            ("kernels", 2, 90, 1, 1000),
        ],
        tuple(_HOW),
        _COUNTS,
        (20, 40, 60, 90, 120, 150, 200, 300),
        (1, 2),
        (0, 1000),
    ),
)
def test_different_long_launches(world, *, how, count, ms, processes, before):
    """Also behind short kernels: the driver's queue has room for more of them."""
    both = [
        Container("long", [_different(count, ms, how, before)] * processes, 20),
        Container("neighbour", [w.ASYNC_500US.program], 79),
    ]
    played = world().play(both, _SECONDS)
    assert _least(played, "neighbour") >= min(60, 93 - processes * ms / 10)


@pytest.mark.parametrize("company", ["alone", pytest.param("beside one", marks=TORTURE)])
@pytest.mark.parametrize("us", [200, *(pytest.param(us, marks=TORTURE) for us in (20, 1000))])
def test_many_different_short_kernels_lose_no_time(world, us, company):
    """Each of a thousand is launched for the first time once."""
    seconds = 1.5
    program = Program((seconds, 1000, us, "kernels", 0), name="different")
    containers = [Container("many", [program], 50, "soft")]
    if company == "beside one":
        containers.append(Container("neighbour", [w.ASYNC_500US.program], 50, "soft"))
    played = world(late_us=50).play(containers, seconds)
    completed = played.said["many"][0]["completed"] * us / 1e6
    assert completed >= 0.95 * seconds / len(containers)
