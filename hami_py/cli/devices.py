"""``hami devices``: the cards, and how to name them."""

import json
from dataclasses import asdict

import click

from hami_py import config
from hami_py._native import format_memory
from hami_py.cli.say import table
from hami_py.slices import cards


@click.command(short_help="List the cards of this machine.")
@click.option("--json", "as_json", is_flag=True, help="For programs; memory in bytes.")
def devices(as_json: bool) -> None:
    """List the cards of this machine, or inside a slice those of the slice."""
    found = cards(config.read())
    if as_json:
        click.echo(json.dumps([asdict(card) for card in found], indent=2))
        return
    lines = [("INDEX", "UUID", "MEMORY", "NAME")]
    lines += [
        (str(card.index), card.uuid, format_memory(card.memory_total), card.name) for card in found
    ]
    for line in table(lines):
        click.echo(line)
