"""``hami ps``: the slices of this user, and who is in them."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict

import click

from hami_py import config
from hami_py.cli.overview import lines
from hami_py.cli.pace import Pace
from hami_py.model import SliceInfo
from hami_py.slices import list_slices

Show = Callable[[Sequence[SliceInfo]], None]


@click.command()
@click.option("--processes", "-p", is_flag=True, help="Also each process of a slice.")
@click.option("--json", "as_json", is_flag=True, help="For programs; in bytes and seconds.")
@click.option(
    "--watch",
    type=click.FloatRange(min=0.1),
    is_flag=False,
    flag_value=1.0,
    metavar="[SECONDS]",
    help="Show it again every so many seconds (1), until Ctrl-C.",
)
def ps(processes: bool, as_json: bool, watch: float | None) -> None:
    """List your slices: what their programs may use and do use.

    GPU TIME is engine time: how long a card was busy with a slice's kernels, where shares are in
    force; watched, with the percent of the card's time since the last look.

    STATE is `running`, `kept` (nobody is in it; it waits until `hami rm`), `ending` (its maker has
    gone; it goes with its last process) or `damaged`.
    """
    settings = config.read()

    def look() -> list[SliceInfo]:
        return list_slices(settings)

    pace = Pace()

    def as_lines(slices: Sequence[SliceInfo]) -> None:
        busy = pace.since_last(slices, time.monotonic())
        click.echo("\n".join(line.text for line in lines(slices, processes, busy)))

    def as_array(slices: Sequence[SliceInfo]) -> None:
        # Watched, each look is one line, so that a program can tell them apart.
        listed = [asdict(slice_) for slice_ in slices]
        click.echo(json.dumps(listed, indent=None if watch else 2, default=str))

    show: Show = as_array if as_json else as_lines
    if watch is None:
        show(look())
        return
    # Ctrl-C is how one is done with watching, and no failure.
    with suppress(KeyboardInterrupt):
        if as_json or not sys.stdout.isatty():
            while True:
                show(look())
                sys.stdout.flush()
                time.sleep(watch)
        # Only here: what draws takes longer to load than everything else of `hami`.
        from hami_py.cli import live  # noqa: PLC0415

        live.watch(look, processes, watch)
