"""The ``hami`` command: its subcommands and exit codes."""

import os
import signal
import sys
from typing import NoReturn

import click

import hami_py
from hami_py.cli.commands import HAMI, KUBECTL, Commands
from hami_py.cli.output import report
from hami_py.errors import HamiError


@click.group(
    cls=Commands,
    titles=HAMI,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(hami_py.__version__, prog_name="hami")
def hami() -> None:
    """Share one NVIDIA GPU between programs, with limits that hold."""
    _log_to_standard_error()
    _report_ignored_directory()


def _log_to_standard_error() -> None:
    """Mark each line as ours, because a program may write there too."""
    import logging  # noqa: PLC0415

    logging.basicConfig(format="hami: %(message)s")


def _report_ignored_directory() -> None:
    """Report a HAMI_RUNTIME_DIR that ``hami_py.config`` does not use, and why."""
    from hami_py import config  # noqa: PLC0415
    from hami_py.model import legible  # noqa: PLC0415

    settings = config.read()
    if settings.ignored_directory is not None:
        report(
            f"HAMI_RUNTIME_DIR={legible(settings.environment['HAMI_RUNTIME_DIR'])}"
            f" {settings.ignored_directory}, and is ignored;"
            f" slices are in {settings.runtime_directory}"
        )


@hami.command("help", short_help="Show the help of a command.")
@click.argument("command", metavar="[COMMAND]", required=False)
@click.pass_context
def help_(context: click.Context, command: str | None) -> None:
    """Show the help of a command, or of hami."""
    assert context.parent is not None  # noqa: S101
    if command is None:
        click.echo(hami.get_help(context.parent))
        return
    found = hami.get_command(context.parent, command)
    if found is None:
        raise click.UsageError(f"No such command '{command}'.", context.parent)
    click.echo(found.get_help(click.Context(found, context.parent, info_name=command)))


@hami.command(short_help="Show the version.")
def version() -> None:
    """Show the version of hami."""
    click.echo(f"hami, version {hami_py.__version__}")


@click.group(
    "kubectl-hami",
    cls=Commands,
    titles=KUBECTL,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(hami_py.__version__, prog_name="kubectl hami")
def kubectl_hami() -> None:
    """Show and change what a cluster's GPUs do."""
    _log_to_standard_error()


def _open_standard_files() -> None:
    """Open the standard files that the parent closed, for this process alone.

    Otherwise a file of ours gets such a number, and output of the driver would go into it. Python
    has found before this that there is no standard output, and prints nothing.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def main() -> NoReturn:
    """Run ``hami``."""
    _run(hami, "hami")


def kubectl() -> NoReturn:
    """Run ``kubectl hami``: the commands of ``hami`` that are about a cluster."""
    _run(kubectl_hami, "kubectl hami")


def kubectl_inspect() -> NoReturn:
    """Run ``kubectl inspect hami``, as users of ``kubectl inspect cgpu`` call it."""
    from hami_py.cli.kubernetes.overview import inspect  # noqa: PLC0415

    _log_to_standard_error()
    _run(inspect, "kubectl inspect hami")


def _run(command: click.Command, name: str) -> NoReturn:
    """Run a command line; every error is one line on standard error.

    Exit codes: ``hami run`` exits as its program, or with 125 to 127 (see there). Other commands
    exit with 0, with 1 for a failure, and with 2 for an invalid command line.
    """
    _open_standard_files()
    try:
        status = command.main(prog_name=name, standalone_mode=False)
        # Flushed here, where an error can be reported, and not when the interpreter exits.
        if sys.stdout is not None:
            sys.stdout.flush()
        sys.exit(status)
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else name
        report(f"{error.format_message()} See `{path} --help`.")
        sys.exit(error.exit_code)
    except click.Abort:
        _die_of(signal.SIGINT)
    except HamiError as error:
        report(error)
        sys.exit(1)
    except OSError as error:
        if error.filename is not None:
            raise
        # The buffered output cannot be written, and must not be written again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            _die_of(signal.SIGPIPE)
        report(f"standard output: {error.strerror}; redirect it to a file that can be written")
        sys.exit(1)


def _die_of(number: signal.Signals) -> NoReturn:
    from hami_py.slices import die_of  # noqa: PLC0415

    die_of(number)
