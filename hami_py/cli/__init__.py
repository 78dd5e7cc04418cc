"""The ``hami`` command."""

import os
import signal
import sys
from typing import NoReturn

import click

import hami_py
from hami_py.cli.devices import devices
from hami_py.cli.doctor import doctor
from hami_py.cli.jupyter import jupyter
from hami_py.cli.kubernetes import explain, replay, scheduler, snapshot, webhook, what_if
from hami_py.cli.ps import ps
from hami_py.cli.rm import rm
from hami_py.cli.run import run
from hami_py.cli.say import say
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


def main() -> NoReturn:
    """Run the command line; every error is one line on standard error.

    Exit codes: ``hami run`` as its program, or 125 to 127 (see there); else 0, 1 for a failure,
    and 2 for a command line that is not understood.
    """
    try:
        status = hami.main(prog_name="hami", standalone_mode=False)
        # Here, where what goes wrong can still be told: not at the interpreter's end.
        sys.stdout.flush()
        sys.exit(status)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "hami"
        say(f"{error.format_message()} See `{command} --help`.")
        sys.exit(error.exit_code)
    except click.Abort:
        die_of(signal.SIGINT)
    except HamiError as error:
        say(error)
        sys.exit(1)
    except OSError as error:
        if error.filename is not None:
            raise
        # What is left to be written cannot be, and must not be tried again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            die_of(signal.SIGPIPE)
        say(f"standard output: {error.strerror}; give it a place that can be written")
        sys.exit(1)
