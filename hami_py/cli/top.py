"""``hami top``: a live view of the cards of this machine and the slices on them."""

import sys
from collections.abc import Sequence
from contextlib import suppress

import click

from hami_py import config, gpu
from hami_py.cli.kubernetes import top_node, top_pod
from hami_py.cli.top_state import CardState, Row, rows_of, rows_of_own
from hami_py.config import Settings
from hami_py.slices import cards, limits, list_slices, usage

__all__ = ["read_machine", "top"]


@click.group(invoke_without_command=True, short_help="Watch cards and slices; or nodes and pods.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to look.",
)
@click.pass_context
def top(context: click.Context, interval: float) -> None:
    """Watch the cards of this machine and your slices on them; in a container, its own slice.

    Keys sort the slices: n by name, m by memory, g by GPU time, t by throttled time, r by refused
    allocations; q quits. If standard output is no terminal, one picture is printed as text.

    `hami top node` and `hami top pod` are about a cluster.
    """
    if context.invoked_subcommand is not None:
        return
    settings = config.read()

    def read() -> tuple[Sequence[CardState], Sequence[Row]]:
        return read_machine(settings)

    # Imported here, because rich takes longer to import than the rest of `hami`.
    from hami_py.cli import top_view  # noqa: PLC0415

    # Ctrl-C ends it, and is not a failure.
    with suppress(KeyboardInterrupt):
        if sys.stdout.isatty():
            top_view.follow(read, interval)
        else:
            top_view.print_once(read, interval)


top.add_command(top_node)
top.add_command(top_pod)


def read_machine(settings: Settings) -> tuple[Sequence[CardState], Sequence[Row]]:
    """The cards of this machine, and the user's slices on them."""
    found = cards(settings)
    free = gpu.memory_free([card.uuid for card in found])
    states = [
        CardState(card, card.memory_total - free[card.uuid] if card.uuid in free else None)
        for card in found
    ]
    if limits(settings).source == "none":
        return states, rows_of(list_slices(settings))
    # Slices that programs in here have created are below the own one.
    own = rows_of_own(usage(settings).cards, found)
    return states, [*own, *rows_of(list_slices(settings))]
