"""``hami devices``: list the cards and their names."""

import json
from dataclasses import asdict

import click

from hami_py import config
from hami_py._native import format_memory
from hami_py.cli.output import align
from hami_py.slices import cards


@click.command(short_help="List the cards of this machine.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; memory in bytes.")
def devices(as_json: bool) -> None:
    """List the cards of this machine. Inside a slice: the cards of the slice."""
    found = cards(config.read())
    if as_json:
        click.echo(json.dumps([asdict(card) for card in found], indent=2))
        return
    lines = [("INDEX", "UUID", "MEMORY", "NAME")]
    lines += [
        (str(card.index), card.uuid, format_memory(card.memory_total), card.name) for card in found
    ]
    for line in align(lines):
        click.echo(line)
