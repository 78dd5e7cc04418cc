"""``hami run``: a program in a slice."""

import sys
from typing import NoReturn

import click

from hami_py import config
from hami_py.cli.limits import limit_options
from hami_py.cli.say import say
from hami_py.errors import CannotRun, HamiError, InvalidValue
from hami_py.model import check_name, parse_options
from hami_py.slices import Keeper, die_of, joined, prepared, run_in_foreground

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
@limit_options
@click.option(
    "--device",
    "devices",
    metavar="UUID|INDEX",
    multiple=True,
    help="A card that the program shall see (repeatable; default: all). See `hami devices`.",
)
@click.option("--name", metavar="NAME", help="Name the slice, for `hami ps` and --join.")
@click.option("--keep", is_flag=True, help="Keep the slice at the end, until `hami rm`.")
@click.option(
    "--join",
    metavar="NAME|ID",
    help="Run in a slice that is there, with its limits, instead of a new one.",
)
@click.argument("command", metavar="[--] PROGRAM [ARGS]...", nargs=-1, required=True)
def run(
    *,
    gpumem: tuple[str, ...],
    gpucores: tuple[str, ...],
    mode: str | None,
    priority: str | None,
    devices: tuple[str, ...],
    name: str | None,
    keep: bool,
    join: str | None,
    command: tuple[str, ...],
) -> NoReturn:
    """Run a program with limits on GPU memory and time.

    A share of the time is hard and of normal priority unless something else is said.

    The exit code is the program's; if a signal ends it, the same signal ends `hami run`. 127: the
    program was not found. 126: it cannot be executed. 125: we failed, and say why.
    """
    ended: int | None = None
    try:
        asked = parse_options(gpumem, gpucores, mode, priority)
        if name is not None:
            check_name(name)
        settings = config.read()
        if join is None:
            ready = prepared(settings, command, asked, devices, name=name, keep=keep)
        else:
            limits = {"gpumem": gpumem, "gpucores": gpucores, "mode": mode, "priority": priority}
            _refuse_beside_join(join, **limits, device=devices, name=name, keep=keep)
            ready = joined(settings, join)
        with ready as slice_:
            for note in slice_.notes:
                say(note)
            keeper = Keeper(settings, slice_.directory)
            try:
                ended = run_in_foreground(command, slice_.environment, keeper.look)
            finally:
                keeper.end()
    except CannotRun as error:
        say(error)
        sys.exit(error.status)
    except HamiError as error:
        say(error)
    # An error that came after the program's end does not change how it ended.
    if ended is None:
        sys.exit(OUR_FAILURE)
    if ended < 0:
        die_of(-ended)
    sys.exit(ended)


def _refuse_beside_join(join: str, **options: object) -> None:
    """A slice that is there has its limits, cards and name already."""
    given = ", ".join(f"--{option}" for option, value in options.items() if value)
    if given:
        fix = f"that slice has its own; leave out {given}, or leave out --join for a new slice"
        raise InvalidValue("join", join, fix)
