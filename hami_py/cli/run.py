"""``hami run``: run a program in a slice."""

import sys
from contextlib import closing
from typing import NoReturn

import click

from hami_py import config
from hami_py.cli.options import limit_options
from hami_py.cli.output import report
from hami_py.cli.summary import line
from hami_py.config import SUMMARY
from hami_py.errors import CannotRun, HamiError, InvalidValue, NotLimited
from hami_py.model import parse_options
from hami_py.slices import (
    BypassWatcher,
    CoordinatorSupervisor,
    Measuring,
    Notifications,
    Opened,
    SliceRequest,
    end_like,
    open_named,
    open_new,
    require_checkable,
    run_in_foreground,
    with_own_pid,
)

OUR_FAILURE = 125
"""Exit code for our own failures, as in ``timeout`` and ``docker run``."""


class _InvalidUsage(click.UsageError):
    exit_code = OUR_FAILURE


class _Run(click.Command):
    """A command whose usage errors have an exit code of our own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise _InvalidUsage(error.format_message(), ctx) from error


@click.command(
    cls=_Run,
    context_settings={"allow_interspersed_args": False},
)
@limit_options
@click.option(
    "--device",
    "devices",
    metavar="UUID|INDEX",
    multiple=True,
    help="A card that the program sees; default: all. Can be repeated. See `hami devices`.",
)
@click.option("--name", metavar="NAME", help="A name for the slice, for `hami ps` and --join.")
@click.option("--keep", is_flag=True, help="Keep the slice after the program, until `hami rm`.")
@click.option(
    "--gang",
    metavar="NAME",
    help="Give the GPU to all slices of this user with the same NAME at the same time, for programs"
    " whose kernels wait for each other. Other machines are not waited for.",
)
@click.option(
    "--join",
    metavar="NAME|ID",
    help="Run in an existing slice, with its limits, instead of a new one.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="End the program if it, or one that it starts, uses the GPU without the limits.",
)
@click.option(
    "--summary",
    is_flag=True,
    help="At the end, print a line: the most memory in use, refusals, throttled time and the share"
    " that was used.",
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
    gang: str | None,
    join: str | None,
    strict: bool,
    summary: bool,
    command: tuple[str, ...],
) -> NoReturn:
    """Run a program with limits on GPU memory and time.

    \b
        hami run --gpumem 4GiB --gpucores 30 -- python train.py

    By default a share is hard and has normal priority.

    The exit code is the program's. If a signal ends the program, the same signal ends `hami run`.
    Other exit codes: 127, the program was not found; 126, it is not executable; 125, hami failed.
    """  # noqa: D301
    ended: int | None = None
    try:
        limit_request = parse_options(gpumem, gpucores, mode, priority)
        if strict:
            require_checkable(command[0])
        settings = config.read()
        summary = summary or _is_set(settings.summary)
        if join is None:
            request = SliceRequest(command, limit_request, devices, name, keep, gang=gang)
            opened = open_new(settings, request)
        else:
            limits = {"gpumem": gpumem, "gpucores": gpucores, "mode": mode, "priority": priority}
            _check_join(join, **limits, device=devices, name=name, keep=keep, gang=gang)
            opened = open_named(settings, join)
        with closing(opened):
            directory, base = opened.hold.directory, opened.environment(settings.environment)
            for note in opened.notes:
                report(note)
            supervisor = CoordinatorSupervisor(settings, directory)
            watcher = BypassWatcher(directory, opened.library)
            measuring = Measuring(settings, directory)

            def check(program: int) -> float:
                supervisor.check()
                measuring.start()
                _report_bypasses(watcher, program, strict=strict)
                return watcher.pause()

            notifications = Notifications(base, settings)
            environment = notifications.environment(base)
            words = with_own_pid(command, environment)
            try:
                ended = run_in_foreground(words, environment, check, notifications)
            finally:
                notifications.close()
                supervisor.close()
                measuring.stop()
                if summary:
                    _report_summary(opened)
    except CannotRun as error:
        report(error)
        sys.exit(error.status)
    except NotLimited as error:
        report(error)
        ended = OUR_FAILURE
    except HamiError as error:
        report(error)
    # An error after the program's end does not change the exit code.
    if ended is None:
        sys.exit(OUR_FAILURE)
    end_like(ended)


def _report_bypasses(watcher: BypassWatcher, program: int, *, strict: bool) -> None:
    """Report the processes that use the GPU without limits, or end the program.

    Raises:
        NotLimited: there is one, and ``strict`` is set. All other processes of the program were
            killed.
    """
    for bypass in watcher.check(program):
        if strict:
            watcher.kill()
            raise bypass.error("; the program was ended (--strict)")
        report(bypass.error())


def _is_set(value: str | None) -> bool:
    if value in {None, "", "0", "1"}:
        return value == "1"
    raise InvalidValue(SUMMARY, value or "", "write 1 or 0")


def _report_summary(opened: Opened) -> None:
    """Report what the slice has used; a failure is reported, and nothing else."""
    try:
        report(line(opened.summary()))
    except HamiError as error:
        report(error)


def _check_join(join: str, **options: object) -> None:
    """Refuse options that an existing slice has already."""
    present = ", ".join(f"--{option}" for option, value in options.items() if value)
    if present:
        fix = f"that slice has its own; leave out {present}, or leave out --join for a new slice"
        raise InvalidValue("join", join, fix)
