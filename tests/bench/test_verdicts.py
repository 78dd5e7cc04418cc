"""The verdict on a scenario follows from the work of its programs."""

from bench import loads
from bench.loads import ASYNC_500US, BURSTY, Member, Scenario
from bench.stage import Ran
from bench.tracks import Track
from bench.verdicts import Judge

JUDGE = Judge("test", {"async-500us": 1.0})


def steady(percent: float, seconds: float = 10.0, **said: object) -> Ran:
    """A program that has this part of the card, seen a hundred times a second."""
    instants = tuple(index / 100 for index in range(int(seconds * 100) + 1))
    return Ran(Track(instants, tuple(instant * percent / 100 for instant in instants)), said)


def test_the_error_is_the_largest_deviation():
    scenario = loads.company(ASYNC_500US, (30, 70), "soft")
    found = {row.name: row for row in JUDGE.rows(scenario, [[steady(31.5)], [steady(67.9)]])}
    error = found["share_error/async-500us/2/30+70-soft"]
    assert (error.value, error.unit, error.target) == (2.1, "points", 1)
    assert error.note == "missed; 31.50 of 30, 67.90 of 70"
    kept = found["work_kept/async-500us/2/30+70-soft"]
    assert (kept.value, kept.note) == (99.4, "")


def test_work_is_relative_to_the_work_without_us():
    (scenario,) = loads.solo(ASYNC_500US, [50], 100)
    judge = Judge("test", {"async-500us": 0.8})
    error, windows = judge.rows(scenario, [[steady(40)]])
    assert error.value == 0
    assert (windows.name, windows.value, windows.n) == ("windows_p95/async-500us/1/50", 0, 10)


def test_the_processes_of_one_slice_share_its_part_equally():
    scenario = loads.crowd(ASYNC_500US, 30, 3)
    *_, equal = JUDGE.rows(scenario, [[steady(20), steady(5), steady(5)]])
    assert (equal.name, equal.note, equal.n) == ("jain/async-500us/1x3/30", "missed", 3)


def test_targets_that_do_not_apply_are_not_missed():
    scenario = Scenario("x/1/30", (Member(ASYNC_500US, 30, expected=30),))
    (error, _) = Judge("test", None, binding=False).rows(scenario, [[steady(60)]])
    assert (error.value, error.target, error.note) == (30, None, "60.00 of 30")


def test_a_burst_is_slower_by_how_much_longer_it_takes():
    bare = steady(10, work_ns=1_000_000_000, late_ns=[0] * 100)
    late = steady(10, work_ns=1_000_000_000, late_ns=[500_000] * 100)
    (scenario,) = loads.solo(BURSTY, [30], 10)
    (row,) = JUDGE.slowdown(scenario, [[late]], bare)
    assert (row.name, row.value, row.note) == ("slowdown/bursty-10%/1/30", 5, "missed")
    # The share is as large as the demand, so the member has to wait.
    (scenario,) = loads.solo(BURSTY, [10], 10)
    assert JUDGE.slowdown(scenario, [[late]], bare) == []
