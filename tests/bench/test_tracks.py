"""The arithmetic that turns work over time into shares and errors."""

import pytest

from bench.tracks import Track, common, jain, percentile, together

HALF = Track((0.0, 10.0), (0.0, 5.0))


def test_work_is_interpolated_between_points_and_not_extrapolated():
    assert HALF.at(4) == 2
    assert (HALF.at(-1), HALF.at(11)) == (0, 5)
    assert HALF.share(2, 6) == 50


def test_windows_omit_an_incomplete_one_at_the_end():
    assert HALF.windows(0, 9.5, 2) == [50, 50, 50, 50]
    assert HALF.windows(0, 0.9) == []


def test_from_one_completion_to_another_there_are_whole_kernels():
    # 50 ms of every 160 ms, seen every 10 ms.
    instants = [index / 100 for index in range(200)]
    track = Track(tuple(instants), tuple(0.05 * (index // 16) for index in range(200)))
    start, end = track.completions(0.05, 1.85)
    assert (start, end) == (0.16, 1.76)
    assert track.share(start, end) == pytest.approx(31.25)


def test_with_one_completion_the_whole_interval_is_used():
    assert Track((0.0, 1.0, 2.0), (0.0, 1.0, 1.0)).completions(0, 2) == (0, 2)


def test_the_work_of_several_programs_adds_up_at_every_instant():
    other = Track((5.0, 6.0), (0.0, 1.0))
    both = together([HALF, other])
    assert both.instants == (0, 5, 6, 10)
    assert both.at(5.5) == 2.75 + 0.5
    assert both.work[-1] == 6


def test_the_common_interval_starts_with_the_last_and_ends_with_the_first():
    assert common([HALF, Track((2.0, 8.0), (0.0, 1.0))], 1) == (3, 8)
    with pytest.raises(ValueError, match="no time at which all"):
        common([HALF, Track((11.0, 12.0), (0.0, 1.0))])


def test_fairness_is_one_for_equal_parts():
    assert jain([3, 3, 3, 3]) == 1
    assert jain([4, 0, 0, 0]) == 0.25


def test_a_percentile_is_one_of_the_values():
    assert percentile(list(range(1, 101)), 95) == 95
    assert percentile([7], 95) == 7


def test_a_track_of_one_point_is_refused():
    with pytest.raises(ValueError, match="two points"):
        Track((0.0,), (0.0,))
