"""Output of the commands: messages on standard error, aligned tables, sizes and durations."""

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


def duration(seconds: float) -> str:
    """Seconds for people: ``-`` for none, ``<0.1s``, ``0.3s``, ``2m05s``, ``1h00m``."""
    if not seconds:
        return "-"
    if seconds < 0.1:
        return "<0.1s"
    whole = int(seconds)
    if whole >= 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    if whole >= 60:
        return f"{whole // 60}m{whole % 60:02}s"
    # Rounded down, so that 59.96 s is not shown as 60.0 s.
    return f"{int(seconds * 10) / 10}s"


def approximate(memory: int) -> str:
    """Bytes for people: ``1.5GiB``, ``320MiB``; a size that is not exact has a fraction."""
    size, unit = float(memory), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    exact = size.is_integer()
    return f"{size:.0f}{unit}" if exact or size >= 100 else f"{size:.1f}{unit}"
