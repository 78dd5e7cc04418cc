"""The options that several commands have: a slice's limits, and the seconds between two looks."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import click

from hami_py.model import MODES, PRIORITIES

_Command = TypeVar("_Command", bound=Callable[..., object])

_OPTIONS = (
    click.option(
        "--gpumem",
        metavar="[CARD=]SIZE",
        multiple=True,
        help="Memory limit, like 4GiB, on every card; or on one card, like 0=4GiB or GPU-…=4GiB."
        " Can be repeated. `none` = no limit.",
    ),
    click.option(
        "--gpucores",
        metavar="[CARD=]PERCENT",
        multiple=True,
        help="Share of the card's time, 1 to 100, on every card; or on one card, like 0=30."
        " Can be repeated. `none` = no limit.",
    ),
    click.option(
        "--mode",
        type=click.Choice(MODES),
        help="hard: the share and no more. soft: also idle time. Has no effect without a share.",
    ),
    click.option(
        "--priority",
        type=click.Choice(PRIORITIES),
        help="Slices with a higher priority get the card first, whatever their shares are. A soft"
        " slice, or one without a share, may take all but 2 % of the card's time. Has an effect if"
        " any slice on the card has a share.",
    ),
)


class Seconds(click.FloatRange):
    """Seconds between two looks: a day at most, and a number."""

    def __init__(self, shortest: float) -> None:
        super().__init__(min=shortest, max=86_400)

    def convert(
        self,
        value: Any,  # noqa: ANN401
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        """As the range does, which accepts NaN."""
        seconds = float(super().convert(value, param, ctx))
        if math.isnan(seconds):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return seconds


def limit_options(command: _Command) -> _Command:
    """Add ``--gpumem``, ``--gpucores``, ``--mode`` and ``--priority`` to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
