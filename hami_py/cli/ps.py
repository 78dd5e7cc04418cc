"""``hami ps``: list the user's slices and their processes."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict

import click

from hami_py import config
from hami_py.cli.options import Seconds
from hami_py.cli.output import report
from hami_py.cli.ps_table import Key, lines, rated
from hami_py.cli.summary import table
from hami_py.config import Settings
from hami_py.model import Rates, SliceInfo
from hami_py.slices import ended as ended_slices
from hami_py.slices import list_own, list_slices
from hami_py.slices.machine import NoAnswer

_ENDED = 20
"""How many slices that have ended the table has: about a screen."""

Show = Callable[[Sequence[SliceInfo]], None]


@click.command()
@click.option("--processes", "-p", is_flag=True, help="Also list the processes of each slice.")
@click.option(
    "--all", "everyone", is_flag=True, help="Also those of others that `hami machine` lets you see."
)
@click.option("--ended", is_flag=True, help="List the last slices that ended instead.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; in bytes and seconds.")
@click.option(
    "--watch",
    type=Seconds(0.1),
    is_flag=False,
    flag_value=1.0,
    metavar="[SECONDS]",
    help="Repeat every SECONDS (default: 1) until Ctrl-C.",
)
def ps(processes: bool, everyone: bool, ended: bool, as_json: bool, watch: float | None) -> None:
    """List your slices, their limits and usage.

    USED includes DRIVER: what the driver has taken beyond the programs' requests.

    GPU TIME is engine time: how long the card ran the slice's kernels. It is measured while shares
    are in force. With --watch, the percentage is the part of the card's time since the last line.

    LAST USED is how long ago a process of the slice that still runs worked on the card. It is
    measured as GPU TIME is, and for a slice inside another one not at all.

    USER is who runs the slice's processes, or has created it. Where `hami machine` runs, it is
    whose slice it is.

    STATE is `running`, `kept` (unused; it remains until `hami rm`), `ending` (its creator has
    exited; it is removed after its last process) or `damaged`.

    Where `hami machine` runs, `default` is your slice for all other programs; only the policy
    changes it. If the service does not answer, its slices are missing, and the exit code is 1.
    """
    settings = config.read()
    if ended:
        if processes or everyone or watch is not None:
            raise click.UsageError("--ended has neither processes, others nor changes to watch.")
        _show_ended(settings, as_json=as_json)
        return

    def read() -> list[SliceInfo]:
        return list_slices(settings, everyone=everyone)

    rates = Rates[Key]()

    def as_lines(slices: Sequence[SliceInfo]) -> None:
        shares = rated(rates, slices, time.monotonic())
        click.echo("\n".join(line.text for line in lines(slices, processes, shares)))

    def as_array(slices: Sequence[SliceInfo]) -> None:
        # With --watch each reading is one line, so that a program can separate them.
        listed = [asdict(slice_) for slice_ in slices]
        click.echo(json.dumps(listed, indent=None if watch else 2, default=str))

    show: Show = as_array if as_json else as_lines
    if watch is None:
        try:
            show(read())
        except NoAnswer:
            show(list_own(settings))
            raise
        return
    # Ctrl-C ends --watch, and is not a failure.
    with suppress(KeyboardInterrupt):
        if as_json or not sys.stdout.isatty():
            while True:
                show(read())
                sys.stdout.flush()
                time.sleep(watch)
        # Imported here, because rich takes longer to import than the rest of `hami`.
        from hami_py.cli import live  # noqa: PLC0415

        live.watch(read, processes, watch)


def _show_ended(settings: Settings, *, as_json: bool) -> None:
    found = ended_slices(settings.runtime_directory, settings.node_runtime)
    if as_json:
        click.echo(json.dumps([asdict(each) for each in found], indent=2))
        return
    click.echo("\n".join(table(found[-_ENDED:])))
    if len(found) > _ENDED:
        earlier = len(found) - _ENDED
        report(f"{earlier} earlier slices are not shown; `hami ps --ended --json` lists all")
