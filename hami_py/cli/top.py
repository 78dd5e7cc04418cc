"""``hami top``: a live view of the cards of this machine and the slices on them."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click

from hami_py import config, gpu
from hami_py.cli.commands import TOP, Commands
from hami_py.cli.options import Seconds
from hami_py.cli.top_state import Reading, process_rows, rows_of, rows_of_own
from hami_py.config import HAMI_SLICE, Settings
from hami_py.model import NodeCard, SliceInfo, SliceUse
from hami_py.slices import card_users, cards, limits, list_slices, overbooked, usage


@click.group(cls=Commands, titles=TOP, invoke_without_command=True)
@click.option(
    "--interval",
    type=Seconds(0.1),
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
        indices = {card.uuid: card.index for card in cards if card.index is not None}
        return Reading(
            cards,
            rows,
            process_rows(card_users(), cards, slices),
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
) -> tuple[Sequence[NodeCard], Sequence[SliceUse], Sequence[SliceInfo]]:
    """The cards of this machine, and the slices that the user may see: as rows, and as they are."""
    found = cards(settings)
    free = gpu.memory_free([card.uuid for card in found])
    totals = {card.uuid: card.memory_total for card in found}
    used = {uuid: totals[uuid] - left for uuid, left in free.items()}
    known = [
        NodeCard(each.uuid, each.index, each.name, each.memory_total, used.get(each.uuid))
        for each in found
    ]
    slices = list_slices(settings, everyone=True)
    around = {Path(each).name for each in settings.environment.get(HAMI_SLICE, "").split(":")}
    if limits(settings).source == "none" or any(each.id in around for each in slices):
        return known, rows_of(slices), slices
    # Slices that programs in here have created are below the own one.
    own = rows_of_own(usage(settings).cards, found)
    return known, [*own, *rows_of(slices)], slices
