"""``hami rm``: take slices away that are kept, or damaged."""

import sys
from typing import NoReturn

import click

from hami_py import config
from hami_py.cli.say import say
from hami_py.errors import HamiError
from hami_py.slices import remove


@click.command()
@click.argument("slices", metavar="NAME|ID...", nargs=-1, required=True)
def rm(slices: tuple[str, ...]) -> NoReturn:
    """Remove slices that nobody uses.

    The start of an id is enough if no other begins so. A slice that is in use is refused, and the
    others are still removed; then the exit code is 1.
    """
    settings = config.read()
    failed = False
    for name in dict.fromkeys(slices):
        try:
            remove(settings, name)
        except HamiError as error:
            say(error)
            failed = True
    sys.exit(1 if failed else 0)
