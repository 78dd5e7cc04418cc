"""``hami top``: a live view of the cards of this machine and the slices on them."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click

from hami_py import config, gpu
from hami_py.cli.commands import TOP, Commands
from hami_py.cli.top_state import (
    CardState,
    Reading,
    process_rows,
    rows_of,
    rows_of_own,
)
from hami_py.config import HAMI_SLICE, Settings
from hami_py.model import SliceInfo, SliceUse
from hami_py.slices import card_users, cards, limits, list_slices, overbooked, usage


@click.group(cls=Commands, titles=TOP, invoke_without_command=True)
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

    It also shows all processes on the cards, and whose they are.

    Keys sort the slices: n by name, m by memory, g by GPU time, t by throttled time, r by refused
    allocations; q quits. If standard output is no terminal, one picture is printed as text.

    `hami top node` and `hami top pod` are about a cluster.
    """
    if context.invoked_subcommand is not None:
        return
    settings = config.read()

    def read() -> Reading:
        cards, rows, slices = read_machine(settings)
        known = [state.card for state in cards]
        indices = {card.uuid: card.index for card in known}
        return Reading(
            cards,
            rows,
            process_rows(card_users(), known, slices),
            overbooked(settings, indices, of_all_users=True),
        )

    # Imported here, because rich takes longer to import than the rest of `hami`.
    from hami_py.cli import top_view  # noqa: PLC0415

    # Ctrl-C ends it, and is not a failure.
    with suppress(KeyboardInterrupt):
        if sys.stdout.isatty():
            top_view.follow(read, interval)
        else:
            top_view.print_once(read, interval)


def read_machine(
    settings: Settings,
) -> tuple[Sequence[CardState], Sequence[SliceUse], Sequence[SliceInfo]]:
    """The cards of this machine, and the user's slices on them: as rows, and as they are."""
    found = cards(settings)
    free = gpu.memory_free([card.uuid for card in found])
    states = [
        CardState(card, card.memory_total - free[card.uuid] if card.uuid in free else None)
        for card in found
    ]
    slices = list_slices(settings)
    around = {Path(each).name for each in settings.environment.get(HAMI_SLICE, "").split(":")}
    if limits(settings).source == "none" or any(each.id in around for each in slices):
        return states, rows_of(slices), slices
    # Slices that programs in here have created are below the own one.
    own = rows_of_own(usage(settings).cards, found)
    return states, [*own, *rows_of(slices)], slices
