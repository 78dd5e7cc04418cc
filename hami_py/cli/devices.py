"""``hami devices``: list the cards, and whose programs use them."""

import json
from dataclasses import asdict

import click

from hami_py import config
from hami_py._native import format_memory
from hami_py.cli.output import align, legible_command
from hami_py.cli.values import approximate
from hami_py.slices import card_users, cards


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON; memory in bytes.")
def devices(as_json: bool) -> None:
    """List the cards of this machine, and all processes on them with their users.

    Inside a slice: the cards and the processes of the slice.
    """
    found, users = cards(config.read()), card_users()
    if as_json:
        listed = [
            {
                **asdict(card),
                "processes": [asdict(user) for user in users if user.card == card.uuid],
            }
            for card in found
        ]
        click.echo(json.dumps(listed, indent=2))
        return
    lines = [("INDEX", "UUID", "MEMORY", "NAME")]
    lines += [
        (str(card.index), card.uuid, format_memory(card.memory_total), card.name) for card in found
    ]
    for line in align(lines):
        click.echo(line)
    processes = [
        (
            str(card.index),
            str(user.pid),
            user.user or "-",
            "-" if user.memory is None else approximate(user.memory),
            legible_command(user.command) or "-",
        )
        for card in found
        for user in users
        if user.card == card.uuid
    ]
    if processes:
        click.echo()
        for line in align([("INDEX", "PID", "USER", "MEMORY", "COMMAND"), *processes]):
            click.echo(line)
