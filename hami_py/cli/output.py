"""Output of the commands: messages on standard error, aligned tables, command lines."""

import shlex
from collections.abc import Iterator, Sequence

import click


def report(message: object) -> None:
    """Write a line to standard error, marked as ours: a program may be writing there too."""
    click.echo(f"hami: {message}", err=True)


def align(lines: Sequence[Sequence[str]]) -> Iterator[str]:
    """Align the cells of a table; the first line has the column heads."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        yield "  ".join(padded).rstrip()


def legible_command(command: Sequence[str]) -> str:
    """A command line in a shell's syntax, on one line."""
    on_one_line = " ".join(shlex.join(command).split())
    return "".join(c if c.isprintable() else "�" for c in on_one_line)
