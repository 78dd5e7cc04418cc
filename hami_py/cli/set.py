"""``hami set``: change the limits of a slice."""

import click

from hami_py import config
from hami_py.cli.options import limit_options
from hami_py.cli.output import report
from hami_py.model import parse_options
from hami_py.slices import resize_named


@click.command("set", short_help="Change the limits of a slice.")
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
    """Change the limits of a slice while its programs run.

    Limits that are not named stay. The start of an id is enough if it is unique. If the memory
    limit falls below the usage, programs keep their memory, and new memory is refused until enough
    has been released.
    """
    request = parse_options(gpumem, gpucores, mode, priority)
    if request.is_empty:
        raise click.UsageError("Give at least one of --gpumem, --gpucores, --mode and --priority.")
    for note in resize_named(config.read(), name, request):
        report(note)
