"""``hami devices``: the cards, and how to name them."""

import json
from dataclasses import asdict

import click

from hami_py import config, slices
from hami_py._native import format_memory


@click.command()
@click.option("--json", "as_json", is_flag=True, help="For programs; memory in bytes.")
def devices(as_json: bool) -> None:
    """List the cards of this machine, or inside a slice those of the slice."""
    cards = slices.cards(config.read())
    if as_json:
        click.echo(json.dumps([asdict(card) for card in cards], indent=2))
        return
    lines = [("INDEX", "UUID", "MEMORY", "NAME")]
    lines += [
        (str(card.index), card.uuid, format_memory(card.memory_total), card.name) for card in cards
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        click.echo("  ".join(padded).rstrip())
