"""The ``hami`` command: its subcommands and exit codes."""

import os
import signal
import sys
from typing import NoReturn

import click

import hami_py
from hami_py.cli.devices import devices
from hami_py.cli.doctor import doctor
from hami_py.cli.jupyter import jupyter
from hami_py.cli.kubernetes import explain, node, replay, scheduler, snapshot, webhook, what_if
from hami_py.cli.output import report
from hami_py.cli.ps import ps
from hami_py.cli.rm import rm
from hami_py.cli.run import run
from hami_py.cli.set import set_
from hami_py.errors import HamiError
from hami_py.slices import die_of


@click.group(no_args_is_help=False)
@click.version_option(hami_py.__version__, prog_name="hami")
def hami() -> None:
    """Share one NVIDIA GPU between programs, with limits that hold."""


hami.add_command(run)
hami.add_command(ps)
hami.add_command(set_)
hami.add_command(rm)
hami.add_command(devices)
hami.add_command(doctor)
hami.add_command(jupyter)
hami.add_command(explain)
hami.add_command(what_if)
hami.add_command(snapshot)
hami.add_command(replay)
hami.add_command(webhook)
hami.add_command(scheduler)
hami.add_command(node)


def _open_standard_files() -> None:
    """Open the standard files that the parent closed, for this process alone.

    Otherwise a file of ours gets such a number, and output of the driver would go into it. Python
    has found before this that there is no standard output, and prints nothing.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def main() -> NoReturn:
    """Run the command line; every error is one line on standard error.

    Exit codes: ``hami run`` exits as its program, or with 125 to 127 (see there). Other commands
    exit with 0, with 1 for a failure, and with 2 for an invalid command line.
    """
    _open_standard_files()
    try:
        status = hami.main(prog_name="hami", standalone_mode=False)
        # Flushed here, where an error can be reported, and not when the interpreter exits.
        if sys.stdout is not None:
            sys.stdout.flush()
        sys.exit(status)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "hami"
        report(f"{error.format_message()} See `{command} --help`.")
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
