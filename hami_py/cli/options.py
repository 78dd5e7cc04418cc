"""The options that set a slice's limits, for every command that creates or changes a slice."""

from collections.abc import Callable
from typing import TypeVar

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
        " slice, or one without a share, can then take all the time. Has an effect if any slice on"
        " the card has a share.",
    ),
)


def limit_options(command: _Command) -> _Command:
    """Add ``--gpumem``, ``--gpucores``, ``--mode`` and ``--priority`` to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
