"""A few variants of a test in every run, and all combinations in the thorough one."""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, get_args

import pytest

#: Marks values that only the thorough run tests.
TORTURE = pytest.mark.tier("torture")

Mode = Literal["hard", "soft"]

MODES: Sequence[Mode] = get_args(Mode)


#: Combinations that fail, by the reason.
Failing = Mapping[str, Collection[tuple[object, ...]]]


def varied(
    some: Sequence[tuple[object, ...]],
    *axes: Sequence[object],
    failing: Failing | None = None,
) -> list[object]:
    """Values for `parametrize`: ``some`` always, all combinations of ``axes`` in the torture tier.

    Args:
        some: each with one value for every axis, of the axis or not.
        axes: the values of each argument.
        failing: combinations that are expected to fail, of the axes or not.
    """
    return thorough(some, itertools.product(*axes), failing)


def thorough(
    some: Sequence[tuple[object, ...]],
    every: Iterable[tuple[object, ...]],
    failing: Failing | None = None,
) -> list[object]:
    """The same of combinations that are not all of some axes."""
    reasons = {values: reason for reason, each in (failing or {}).items() for values in each}
    others = dict.fromkeys([*every, *reasons])
    return [*some, *(_thorough(values, reasons) for values in others if values not in some)]


def _thorough(values: tuple[object, ...], reasons: Mapping[tuple[object, ...], str]) -> object:
    marks = [TORTURE]
    if values in reasons:
        marks.append(pytest.mark.xfail(strict=True, reason=reasons[values]))
    return pytest.param(*values, marks=marks)
