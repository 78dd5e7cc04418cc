"""Console scripts in a world: calls of the driver, line by line, on the virtual clock.

A console that a test talks to runs on the real clock, because reading from an idle pipe would stop
the world. In a world its lines come from a file.
"""

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from support.launcher import BEGIN
from support.world import Kit, Program


@dataclass(frozen=True)
class Script:
    """A console with device 0 in use, which executes lines and then sleeps.

    Attributes:
        program: for a `Container`.
    """

    program: Program
    _answers: Path

    @classmethod
    def of(cls, kit: Kit, folder: Path, lines: Iterable[str], *, begin: float = 0.0) -> "Script":
        """A script whose files are in the folder.

        It sleeps for a second at its end: a `look` reads the account before the process leaves it.
        """
        place = Path(tempfile.mkdtemp(dir=folder))
        text = "".join(f"{line}\n" for line in [*BEGIN, *lines, "sleep 1000"])
        (place / "lines").write_text(text)
        files = [place / "lines", place / "answers"]
        command = ["sh", "-c", 'exec "$0" < "$1" > "$2"', kit.own("console"), *files]
        return cls(Program(command, begin=begin, command=True), place / "answers")

    def succeeded(self) -> None:
        """Every call returned success, and the script went to its end."""
        answers = self._answers.read_text().splitlines()
        failed = [line for line in answers if line.partition(" -> ")[2].split(" ")[0] != "0"]
        assert not failed
        assert answers[-1] == "sleep 1000 -> 0"
