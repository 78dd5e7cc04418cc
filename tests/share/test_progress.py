"""Programs whose kernels wait for later launches end under every share.

A kernel may spin until a later launch of its own process runs, or until the host sets a flag behind
later launches: blocking kernels of benchmarks and of PyTorch, grids that exchange data between
streams. Such a launch must be made although its process has used up its share, or the program
hangs. The program owes the engine time of these launches, like any other.
"""

from collections.abc import Sequence
from itertools import product
from typing import Literal, get_args

import pytest

from share import workloads as w
from share.variants import MODES, TORTURE, varied
from support.world import Container, Program

Company = Literal["alone", "beside one", "beside three"]

_COMPANY: Sequence[Company] = get_args(Company)

_BESIDE: Sequence[Company] = ("beside one", "beside three")

#: What opens a kernel that spins.
_HOW = ("launch", "host")

#: The shortest time in seconds after which a program that has not ended is killed.
_SHORTEST = 2.0


def _containers(program, share, mode, company):
    """The program with its share, and neighbours with the rest that always have work."""
    count = {"alone": 0, "beside one": 1, "beside three": 3}[company]
    rest = [max(1, (100 - share) // count)] * count if count else []
    neighbours = [
        Container(f"busy{index}", [w.ASYNC_500US.program], part, mode)
        for index, part in enumerate(rest)
    ]
    return [Container("waiting", [program], share, mode), *neighbours]


def _play(world, containers, work):
    """``work``: about how many seconds of engine time the first container's program needs.

    Its neighbours run for about as long as it may take.
    """
    share = containers[0].share
    assert share is not None
    return world.play(containers, round(max(_SHORTEST, 3 * 100 * work / share + 1), 2))


def _assert_ended(played, rounds, share):
    """Its share slows it down and no more. Time in which its kernels spin counts as its own."""
    (said,) = played.said["waiting"]
    assert said, "it never came to its end"
    assert said["completed"] == rounds
    elapsed = said["elapsed_ns"] / 1e9
    used = played.busy("waiting", 0.0, elapsed + 1.0)
    assert elapsed <= 3 * 100 * used / share + 1.0, f"{elapsed} s for {used} s of the engine"


@pytest.mark.parametrize(
    ("how", "threads", "behind", "share", "mode", "company"),
    varied(
        [
            ("launch", 1, 1, 50, "hard", "alone"),
            ("launch", 1, 40, 10, "hard", "beside one"),
            ("launch", 8, 4, 50, "soft", "beside one"),
            ("launch", 2, 4, 1, "hard", "alone"),
            ("host", 1, 1, 50, "hard", "alone"),
            ("host", 1, 200, 30, "hard", "alone"),
            ("host", 2, 40, 30, "hard", "beside one"),
            ("host", 4, 4, 99, "soft", "beside one"),
        ],
        _HOW,
        (1, 2, 8),
        (1, 40),
        (1, 10, 50, 99),
        MODES,
        _COMPANY,
        failing={
            "it takes more than three times the expected time": [
                *((how, 2, 40, 1, "hard", beside) for how, beside in product(_HOW, _BESIDE)),
                *((how, 8, 40, 1, "hard", "alone") for how in _HOW),
                *(
                    (how, 8, 40, share, "hard", beside)
                    for how, share, beside in product(_HOW, (1, 10, 50, 99), _BESIDE)
                ),
            ],
            "its first kernel waits 0.5 s for a function of unknown cost, which 1 % pays in 50 s": [
                *((how, 2, 40, 1, "hard", "alone") for how in _HOW),
                *(
                    (how, threads, behind, 1, "hard", beside)
                    for how, (threads, behind), beside in product(
                        _HOW, ((1, 1), (2, 1), (8, 1), (1, 40)), _BESIDE
                    )
                ),
            ],
        },
    ),
)
def test_a_kernel_that_spins_until_it_is_opened(
    world, *, how, threads, behind, share, mode, company
):
    """Its thread opens it only after further launches behind it."""
    rounds, us = 3, 500
    gates = Program((rounds, threads, us, behind, how), name="gates")
    # Kernels of several threads overlap.
    work = rounds * behind * us / 1e6
    played = _play(world(), _containers(gates, share, mode, company), work)
    _assert_ended(played, rounds * threads, share)


@pytest.mark.parametrize(
    ("us", "behind", "share", "mode"),
    varied(
        [(5_000, 40, 30, "hard"), (20, 400, 10, "hard")],
        (20, 5_000),
        (1, 40, 400),
        (5, 30, 75),
        MODES,
    ),
)
@pytest.mark.parametrize("how", _HOW)
def test_short_and_long_kernels_behind_one_that_spins(world, *, how, us, behind, share, mode):
    rounds = 3
    gates = Program((rounds, 1, us, behind, how), name="gates")
    alone = _containers(gates, share, mode, "alone")
    played = _play(world(), alone, rounds * behind * us / 1e6)
    _assert_ended(played, rounds, share)


@pytest.mark.parametrize(
    ("streams", "share", "mode", "company"),
    varied(
        [
            (17, 99, "hard", "alone"),
            (17, 30, "hard", "beside one"),
            (64, 50, "soft", "beside one"),
            (128, 30, "hard", "alone"),
        ],
        (2, 16, 17, 64, 128, 256),
        (1, 10, 50, 99),
        MODES,
        _COMPANY,
        failing={
            "it takes more than three times the expected time": [
                (256, 1, "hard", beside) for beside in _BESIDE
            ]
        },
    ),
)
@pytest.mark.parametrize("us", [500, pytest.param(5_000, marks=TORTURE)])
def test_streams_whose_kernels_need_each_other(world, *, streams, us, share, mode, company):
    """None of the kernels ends before the last of them is launched."""
    # The stub takes seconds for a stall of hundreds of streams.
    rounds = 6 if streams <= 64 else 2
    circle = Program((rounds, streams, us), name="circle")
    played = _play(world(), _containers(circle, share, mode, company), rounds * us / 1e6)
    _assert_ended(played, rounds, share)


#: Microseconds between two launches: none, and more than a batch of ours stays open.
_PAUSES = (0, 5_000)


@pytest.mark.parametrize(
    ("us", "pause_us", "share", "mode", "company"),
    varied(
        [
            (500, 0, 50, "hard", "alone"),
            (500, 5_000, 50, "hard", "alone"),
            (500, 5_000, 30, "hard", "beside one"),
            (500, 5_000, 70, "soft", "beside one"),
        ],
        (500, 5_000),
        _PAUSES,
        (1, 10, 50, 99),
        MODES,
        _COMPANY,
        failing={
            "it takes more than three times the expected time": [(5_000, 5_000, 1, "hard", "alone")]
        },
    ),
)
def test_blocking_streams_whose_kernels_need_each_other_beside_the_null_stream(
    world, *, us, pause_us, share, mode, company
):
    """An event in the NULL stream between the two launches would be a barrier between them."""
    # The time of a kernel has to be known before its launches are metered together.
    rounds = 60
    program = Program((rounds, f"swap_{us}us_meets2_streams", pause_us), name="null_between")
    work = rounds * (20 + us + pause_us) / 1e6
    played = _play(world(), _containers(program, share, mode, company), work)
    _assert_ended(played, rounds, share)


@pytest.mark.parametrize(
    ("us", "share", "mode", "company"),
    varied(
        [
            (10_000, 50, "hard", "alone"),
            (10_000, 50, "hard", "beside one"),
            (10_000, 50, "soft", "beside one"),
        ],
        (10_000, 4_000),
        (10, 30, 50, 90, 99),
        MODES,
        _COMPANY,
        failing={
            "it uses 14 % more engine time than without a share": [
                (4_000, 10, "hard", "beside three"),
                (4_000, 10, "soft", "beside three"),
                (4_000, 99, "hard", "beside three"),
            ]
        },
    ),
)
def test_kernels_of_blocking_streams_stay_beside_each_other(world, us, share, mode, company):
    """Two kernels in two streams take the engine time of one, as without us."""
    rounds, pause_us = 60, 500
    program = Program((rounds, f"beside_{us}us", pause_us), name="null_between")
    work = rounds * (20 + us + pause_us) / 1e6
    played = _play(world(), _containers(program, share, mode, company), work)
    _assert_ended(played, rounds, share)
    assert played.busy("waiting", 0.0, 1000.0) <= 1.1 * work


@pytest.mark.parametrize(
    ("how", "share", "company"),
    varied(
        [("launch", 10, "alone"), ("host", 30, "beside one")],
        _HOW,
        (10, 30, 60),
        ("alone", "beside one"),
    ),
)
def test_what_is_let_through_is_owed(world, how, share, company):
    """A program does not exceed its share by kernels that wait for launches."""
    rounds, us, behind = 100, 500, 8
    gates = Program((rounds, 1, us, behind, how), name="gates")
    work = rounds * behind * us / 1e6
    played = _play(world(), _containers(gates, share, "hard", company), work)
    _assert_ended(played, rounds, share)
    elapsed = played.said["waiting"][0]["elapsed_ns"] / 1e9
    used = played.busy("waiting", 0.0, elapsed + 1.0)
    # The last round may not be paid yet.
    assert used * (1 - 1 / rounds) <= 1.02 * share / 100 * elapsed + 0.02


def test_a_benchmark_with_blocking_kernels_makes_half_as_many_samples(world):
    """The time in which its kernels spin is billed; it made a tenth of them at 90 percent."""
    samples = Program((400, 1, 500, 4, "host"), name="gates")
    alone = _containers(samples, 90, "hard", "alone")
    bare = [Container("waiting", [samples], bare=True)]
    held, native = (
        world().play(one, _SHORTEST).said["waiting"][0]["elapsed_ns"] for one in (alone, bare)
    )
    assert held <= 2 * native


@pytest.mark.parametrize(
    "program",
    [
        Program((3, 8, 500, 40, "launch"), name="gates"),
        Program((3, 8, 500, 40, "host"), name="gates"),
        Program((6, 256, 500), name="circle"),
        Program((60, "swap_500us_meets2_streams", 5_000), name="null_between"),
    ],
    ids=lambda program: f"{program.name}-{program.options[-1]}",
)
def test_without_us_they_end_too(world, program):
    """Otherwise the other tests would show nothing."""
    bare = Container("waiting", [program], bare=True)
    beside = Container("busy", [w.ASYNC_500US.program], bare=True)
    for containers in ([bare], [bare, beside]):
        played = world().play(containers, _SHORTEST)
        assert played.said["waiting"][0]["completed"] > 0
