"""A CUDA program that does what a test tells it to: programs/console.c, spoken to."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from support.running import Command, Started

OUT_OF_MEMORY = 2
NOT_SUPPORTED = 801
"""CUresult."""

RELEASE_THRESHOLD, RESERVED_NOW, RESERVED_HIGH, USED_NOW, USED_HIGH = 4, 5, 6, 7, 8
"""CUmemPool_attribute."""

DEFAULT_POOL = 0
"""The console's number for the device's default pool, after ``default_pool``."""


@dataclass(frozen=True)
class Answer:
    """What one command gave: the CUresult, and out values by name."""

    code: int
    values: Mapping[str, int]

    def __getitem__(self, name: str) -> int:
        return self.values[name]


class Console(Started):
    """A running console; left by ``with`` it is dead, and with it all that it held."""

    def __init__(
        self, program: Path, env: Mapping[str, str], road: str = "dlsym", *prefix: str
    ) -> None:
        command: Command = [*prefix, program, road]
        super().__init__(command, env)

    def ask(self, name: str, *arguments: object) -> Answer:
        """One command, whatever comes of it."""
        self.tell(" ".join([name, *map(str, arguments)]))
        code, *pairs = self.next_line().split()
        values = (pair.split("=") for pair in pairs)
        return Answer(int(code), {key: int(value) for key, value in values})

    def do(self, name: str, *arguments: object) -> Answer:
        """One command that has to succeed."""
        answer = self.ask(name, *arguments)
        assert answer.code == 0, f"{name} {arguments}: {answer}"
        return answer

    def start(self, ordinal: int = 0) -> "Console":
        """Make the primary context of a device current."""
        self.do("init")
        self.do("use", ordinal)
        return self

    def fill(self, command: str, step: int, most: int) -> tuple[int, int]:
        """Repeat an allocation of ``step`` bytes until it is refused, or ``most`` bytes are there.

        The bytes that were had, and the CUresult of the last allocation.
        """
        had, code = 0, 0
        while had < most and (code := self.ask(*_allocation(command, step)).code) == 0:
            had += step
        return had, code


def _allocation(command: str, step: int) -> tuple[object, ...]:
    """The command that allocates so many bytes."""
    name, *rest = command.split()
    return (name, step, 1) if name == "pitch" else (name, *rest, step)
