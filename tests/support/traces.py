"""Comparing what a program saw without the library and with it."""

import re

#: Out values that a limit is there to change.
_VIRTUALISED = re.compile(r"\b(total|free|used|reserved)=\d+")


def comparable(trace: str) -> list[str]:
    """The trace's lines, without the values that a limit is there to change."""
    return [_VIRTUALISED.sub(r"\1=#", line) for line in trace.splitlines()]


def value(line: str, name: str) -> int:
    """The out value of this name in a line of a trace."""
    found = re.search(rf"\b{name}=(\d+)", line)
    assert found, f"no {name} in {line!r}"
    return int(found[1])
