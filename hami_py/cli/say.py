"""What is said to the user beside a command's own output."""

import click


def say(message: object) -> None:
    """One line on standard error, marked as ours: a program may be writing there too."""
    click.echo(f"hami: {message}", err=True)
