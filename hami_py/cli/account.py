"""``hami account``: who has used how much of the cards of a shared machine."""

import csv
import json
import os
import sys
from datetime import datetime, timezone

import click

from hami_py import config
from hami_py.cli.output import align
from hami_py.cli.values import approximate
from hami_py.errors import InvalidValue
from hami_py.slices import SHOWN_ID
from hami_py.slices.machine import required_machine
from hami_py.slices.processes import user_name

_NAMES = {"user": ("user",), "slice": ("user", "slice", "name", "kind"), "card": ("card",)}

_PEAK = "held_peak_bytes"
_SUMS = (
    *("reserved_gib_hours", "reserved_card_hours", "held_gib_hours", _PEAK),
    *("engine_seconds", "throttled_seconds"),
)
_HEADS = ("RESERVED GiB-h", "RESERVED CARD-h", "HELD GiB-h", "PEAK", "ENGINE s", "THROTTLED s")


@click.command()
@click.option("--user", help="Only of this user.")
@click.option(
    "--since",
    type=click.DateTime(("%Y-%m-%d",)),
    help="From this day on, in UTC. Default: the first of this month.",
)
@click.option("--by", type=click.Choice(list(_NAMES)), default="user", show_default=True)
@click.option("--format", "form", type=click.Choice(("table", "csv", "json")), default="table")
def account(user: str | None, since: datetime | None, by: str, form: str) -> None:
    """Show what you have used of the cards; root, and users whom the policy names, see all.

    RESERVED is what slices were granted, over time, whether they used it or not. HELD and PEAK are
    what processes held, by the driver. ENGINE and THROTTLED are what the programs have noted
    themselves. A line of a day or of a slice counts if it ends at --since or later. A table
    shows the beginning of an id, as `hami ps` does.
    """
    service, names = required_machine(config.read()), _NAMES[by]
    first = since or datetime.now(timezone.utc).replace(day=1)
    rows: dict[tuple[str, ...], list[float]] = {}
    for answer in service.pages("account", since=f"{first:%Y-%m-%d}", user=user):
        for line in answer["lines"]:
            sums = rows.setdefault(tuple(line[name] for name in names), [0] * len(_SUMS))
            for at, name in enumerate(_SUMS):
                is_peak, value = name == _PEAK, line[name]
                sums[at] = max(sums[at], value) if is_peak else sums[at] + value
    if user is not None and not rows and user != user_name(os.geteuid()):
        fix = "you see none of this user since then; root, and users whom the policy names, see all"
        raise InvalidValue("--user", user, fix)
    heads = (*names, *_SUMS)
    found: list[tuple[str | float, ...]] = [(*key, *sums) for key, sums in sorted(rows.items())]
    if form == "json":
        click.echo(json.dumps([dict(zip(heads, row, strict=True)) for row in found], indent=2))
    elif form == "csv":
        csv.writer(sys.stdout).writerows((heads, *found))
    else:
        upper = (name.upper() for name in names)
        shown = (tuple(map(_shown, heads, row)) for row in found)
        click.echo("\n".join(align([(*upper, *_HEADS), *shown])))


def _shown(head: str, value: str | float) -> str:
    if isinstance(value, str):
        return value[:SHOWN_ID] if head == "slice" else value
    return approximate(int(value)) if head == _PEAK else f"{value:.3f}"
