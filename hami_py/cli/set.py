"""``hami set``: other limits for a slice that is there."""

import click

from hami_py import config
from hami_py.cli.limits import limit_options
from hami_py.cli.say import say
from hami_py.model import parse_options
from hami_py.slices import resize_named


@click.command("set", short_help="Set other limits for a slice.")
@click.argument("name", metavar="NAME|ID")
@limit_options
def set_(
    *,
    name: str,
    gpumem: tuple[str, ...],
    gpucores: tuple[str, ...],
    mode: str | None,
    priority: str | None,
) -> None:
    """Set other limits for a slice, while its programs run.

    What is not named stays as it is. The start of an id is enough if no other begins so. Less
    memory than is in use takes nothing away: new memory is refused until enough was given back.
    """
    asked = parse_options(gpumem, gpucores, mode, priority)
    if asked.is_empty:
        raise click.UsageError("Give at least one of --gpumem, --gpucores, --mode and --priority.")
    for note in resize_named(config.read(), name, asked):
        say(note)
