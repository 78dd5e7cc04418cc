"""A program under a test's direction: preload/programs/script.c, one driver call per line."""

from collections.abc import Mapping
from pathlib import Path

from support.running import Started

SUCCESS = 0
OUT_OF_MEMORY = 2


class Script(Started):
    """`script("alloc a 512M")` makes the call and gives its result; used in `with`.

    ``slice`` is the slice that it runs in, ``said`` the out values of its last call.
    """

    def __init__(self, program: Path, env: Mapping[str, str], slice: Path | None) -> None:
        super().__init__([program], env)
        self._slice = slice
        self.said = ""

    @property
    def slice(self) -> Path:
        """The slice's directory."""
        assert self._slice is not None, "this script runs in no slice"
        return self._slice

    def __call__(self, command: str) -> int:
        """One call; the driver's answer to it."""
        self.tell(command)
        line = self.next_line()
        echo, arrow, answer = line.partition(" -> ")
        assert arrow and echo == command, f"{command!r} was answered with {line!r}"
        result, _, self.said = answer.partition(" ")
        return int(result)

    def do(self, *commands: str) -> None:
        """Calls that must succeed, because the test is not about them."""
        for command in commands:
            result = self(command)
            assert result == SUCCESS, f"{command!r} -> {result}"
