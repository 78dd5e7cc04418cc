"""``hami rm``: remove slices that are kept or damaged."""

import sys
from typing import NoReturn

import click

from hami_py import config
from hami_py.cli.output import report
from hami_py.errors import HamiError
from hami_py.slices import remove


@click.command()
@click.argument("slices", metavar="NAME|ID...", nargs=-1, required=True)
def rm(slices: tuple[str, ...]) -> NoReturn:
    """Remove unused slices.

    The start of an id is enough if it is unique. A slice in use is not removed; the others are, and
    the exit code is 1.
    """
    settings = config.read()
    failed = False
    for name in dict.fromkeys(slices):
        try:
            remove(settings, name)
        except HamiError as error:
            report(error)
            failed = True
    sys.exit(1 if failed else 0)
