"""``hami run``: a program in a slice."""

import sys
from typing import NoReturn

import click

from hami_py import config, slices
from hami_py.cli.say import say
from hami_py.errors import CannotRun, HamiError
from hami_py.model import parse_gpumem, refuse_gpucores

OUR_FAILURE = 125
"""Exit code where not the program failed but we did, as ``timeout`` and ``docker run`` have it."""


class _NotUnderstood(click.UsageError):
    exit_code = OUR_FAILURE


class _Run(click.Command):
    """A command whose usage errors cannot be taken for the program's exit code."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise _NotUnderstood(error.format_message(), ctx) from error


@click.command(cls=_Run, context_settings={"allow_interspersed_args": False})
@click.option(
    "--gpumem",
    metavar="[CARD=]SIZE",
    multiple=True,
    help="Memory limit, e.g. 4GiB: on every card, or on one (0=4GiB, GPU-…=4GiB; repeatable).",
)
@click.option(
    "--device",
    "devices",
    metavar="UUID|INDEX",
    multiple=True,
    help="A card that the program shall see (repeatable; default: all). See `hami devices`.",
)
@click.option("--gpucores", metavar="PERCENT", help="Not enforced yet, and therefore refused.")
@click.argument("command", metavar="[--] PROGRAM [ARGS]...", nargs=-1, required=True)
def run(
    gpumem: tuple[str, ...],
    devices: tuple[str, ...],
    gpucores: str | None,
    command: tuple[str, ...],
) -> NoReturn:
    """Run a program with limits on its GPU memory.

    The exit code is the program's; if a signal ends it, the same signal ends `hami run`. 127: the
    program was not found. 126: it cannot be executed. 125: we failed, and say why.
    """
    ended: int | None = None
    try:
        refuse_gpucores(gpucores)
        memory = parse_gpumem(gpumem)
        with slices.prepared(config.read(), command, memory, devices) as prepared:
            for note in prepared.notes:
                say(note)
            ended = slices.run_in_foreground(command, prepared.environment)
    except CannotRun as error:
        say(error)
        sys.exit(error.status)
    except HamiError as error:
        say(error)
    # An error that came after the program's end does not change how it ended.
    if ended is None:
        sys.exit(OUR_FAILURE)
    if ended < 0:
        slices.die_of(-ended)
    sys.exit(ended)
