"""What is said to the user beside a command's own output."""

from collections.abc import Iterator, Sequence

import click


def say(message: object) -> None:
    """One line on standard error, marked as ours: a program may be writing there too."""
    click.echo(f"hami: {message}", err=True)


def table(lines: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of cells as aligned text, the first of them the heads of the columns."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        yield "  ".join(padded).rstrip()
