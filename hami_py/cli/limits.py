"""The options that say what a slice may use: the same wherever one is made or changed."""

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
        help="Memory limit, e.g. 4GiB: on every card, or on one (0=4GiB, GPU-…=4GiB; repeatable).",
    ),
    click.option(
        "--gpucores",
        metavar="[CARD=]PERCENT",
        multiple=True,
        help="Share of the time, 1 to 100, of every card or of one (0=30; repeatable); none: all.",
    ),
    click.option(
        "--mode",
        type=click.Choice(MODES),
        help="hard: the share and no more; soft: also time that nobody else wants."
        " Waits for a share where there is none.",
    ),
    click.option(
        "--priority",
        type=click.Choice(PRIORITIES),
        help="Who of several slices goes first, whatever their shares: a higher one that is soft,"
        " or has no share, may take all the time. Counts where any of them has a share.",
    ),
)


def limit_options(command: _Command) -> _Command:
    """Give a command ``--gpumem``, ``--gpucores``, ``--mode`` and ``--priority``."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
