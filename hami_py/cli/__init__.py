"""The ``hami`` command: its subcommands and exit codes."""

import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

import click

import hami_py
from hami_py import config
from hami_py.cli.devices import devices
from hami_py.cli.doctor import doctor
from hami_py.cli.jupyter import jupyter
from hami_py.cli.kubernetes import (
    cordon,
    explain,
    inspect,
    node,
    quota,
    replay,
    scheduler,
    snapshot,
    top_node,
    top_pod,
    uncordon,
    webhook,
    what_if,
)
from hami_py.cli.output import report
from hami_py.cli.ps import ps
from hami_py.cli.rm import rm
from hami_py.cli.run import run
from hami_py.cli.set import set_
from hami_py.cli.top import top
from hami_py.cli.view import view
from hami_py.errors import HamiError
from hami_py.model import legible
from hami_py.slices import die_of

CLUSTER: Sequence[click.Command] = (
    inspect,
    quota,
    explain,
    what_if,
    snapshot,
    replay,
    cordon,
    uncordon,
)
"""The commands about a cluster, which ``kubectl hami`` has too."""

GROUPS: Mapping[str, Sequence[click.Command]] = {
    "Programs": (run, ps, set_, rm, jupyter),
    "Machine": (top, view, devices, doctor),
    "Kubernetes": (*CLUSTER, node, scheduler, webhook),
}
"""The commands, as ``hami --help`` groups them."""


class _Grouped(click.Group):
    """A command whose help lists the subcommands by group."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        grouped = {command.name for commands in GROUPS.values() for command in commands}
        rest = [self.commands[name] for name in self.list_commands(ctx) if name not in grouped]
        for title, commands in {**GROUPS, "Help": rest}.items():
            with formatter.section(title):
                widest = max(len(command.name or "") for command in self.commands.values())
                formatter.write_dl(
                    [
                        ((each.name or "").ljust(widest), each.get_short_help_str())
                        for each in commands
                    ]
                )


@click.group(
    cls=_Grouped,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(hami_py.__version__, prog_name="hami")
def hami() -> None:
    """Share one NVIDIA GPU between programs, with limits that hold."""
    _report_ignored_directory()


def _report_ignored_directory() -> None:
    """Report a HAMI_RUNTIME_DIR that ``hami_py.config`` does not use, and why."""
    settings = config.read()
    if settings.ignored_directory is not None:
        report(
            f"HAMI_RUNTIME_DIR={legible(settings.environment['HAMI_RUNTIME_DIR'])}"
            f" {settings.ignored_directory}, and is ignored;"
            f" slices are in {settings.runtime_directory}"
        )


for _commands in GROUPS.values():
    for _command in _commands:
        hami.add_command(_command)


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
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(hami_py.__version__, prog_name="kubectl hami")
def kubectl_hami() -> None:
    """Show and change what a cluster's GPUs do."""


@click.group("top", short_help="Show what nodes and pods use.")
def kubectl_top() -> None:
    """Show what the nodes and pods of a cluster use of their cards."""


kubectl_top.add_command(top_node)
kubectl_top.add_command(top_pod)
for _command in (*CLUSTER, kubectl_top, set_):
    kubectl_hami.add_command(_command)


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
    _run(inspect, "kubectl inspect hami")


def _run(command: click.Command, name: str) -> NoReturn:
    """Run a command line; every error is one line on standard error.

    Exit codes: ``hami run`` exits as its program, or with 125 to 127 (see there). Other commands
    exit with 0, with 1 for a failure, and with 2 for an invalid command line.
    """
    _open_standard_files()
    # A program may write to standard error too. `hami node` and the services have a log.
    logging.basicConfig(format="hami: %(message)s")
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
        die_of(signal.SIGINT)
    except HamiError as error:
        report(error)
        sys.exit(1)
    except OSError as error:
        if error.filename is not None:
            raise
        # The buffered output cannot be written, and must not be written again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            die_of(signal.SIGPIPE)
        report(f"standard output: {error.strerror}; redirect it to a file that can be written")
        sys.exit(1)
