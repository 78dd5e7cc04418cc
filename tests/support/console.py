"""A program that makes the driver calls that a test names: programs/console.c, a call per line."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from support.running import Started

SUCCESS = 0
OUT_OF_MEMORY = 2
NOT_SUPPORTED = 801
"""CUresult."""

RELEASE_THRESHOLD, RESERVED_NOW, RESERVED_HIGH, USED_NOW, USED_HIGH = 4, 5, 6, 7, 8
"""CUmemPool_attribute."""


class Console(Started):
    """`console("alloc a 512M")` makes the call and returns its result.

    Left by `with`, the program is dead, and with it everything that it held.

    Attributes:
        outputs: the out values of the last call, as text.
    """

    def __init__(
        self,
        program: Path,
        env: Mapping[str, str],
        slice: Path | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        """`slice` is the slice that it runs in, `prefix` a command that starts it."""
        super().__init__([*prefix, program], env)
        self._slice = slice
        self.outputs = ""

    @property
    def slice(self) -> Path:
        """The slice's directory."""
        assert self._slice is not None, "this program runs in no slice"
        return self._slice

    def __call__(self, command: str) -> int:
        """Make one call; the driver's result."""
        self.tell(command)
        line = self.next_line()
        echo, arrow, answer = line.partition(" -> ")
        assert arrow and echo == command, f"{command!r} was answered with {line!r}"
        result, _, self.outputs = answer.partition(" ")
        return int(result)

    def do(self, *commands: str) -> None:
        """Make calls that must succeed, because the test is not about them."""
        for command in commands:
            result = self(command)
            assert result == SUCCESS, f"{command!r} -> {result} {self.outputs}"

    def value(self, command: str, name: str) -> int:
        """An out value of a call that must succeed, such as `free` of `info`."""
        self.do(command)
        values = dict(word.split("=") for word in self.outputs.split() if "=" in word)
        return int(values[name])

    def attribute(self, pool: str, attribute: int) -> int:
        """An attribute of a memory pool."""
        self.do(f"get {pool} {attribute}")
        return int(self.outputs.partition(":")[2])

    def fill(self, command: str, step: int, most: int) -> tuple[int, int]:
        """Repeat an allocation of `step` bytes until it is refused, or until `most` are allocated.

        `command` has `{size}` where the size belongs. Returns the allocated bytes and the last
        allocation's CUresult.
        """
        allocated, result = 0, SUCCESS
        while allocated < most and (result := self(command.format(size=step))) == SUCCESS:
            allocated += step
        return allocated, result
