"""A few variants of a test in every run, and all combinations in the thorough one."""

import itertools
from collections.abc import Collection, Sequence
from typing import Literal, get_args

import pytest

#: Marks values that only the thorough run tests.
TORTURE = pytest.mark.tier("torture")

Mode = Literal["hard", "soft"]

MODES: Sequence[Mode] = get_args(Mode)


def varied(
    some: Sequence[tuple[object, ...]],
    *axes: Sequence[object],
    known: Collection[tuple[object, ...]] = (),
) -> list[object]:
    """Values for `parametrize`: ``some`` always, all combinations of ``axes`` in the torture tier.

    Args:
        some: each with one value for every axis, of the axis or not.
        axes: the values of each argument.
        known: combinations that are not tested, because they fail: docs/configuration.md,
            "Known faults of shares".
    """
    without = {*some, *known}
    others = (values for values in itertools.product(*axes) if values not in without)
    return [*some, *(pytest.param(*values, marks=TORTURE) for values in others)]
