"""Runs a program to its end, or until a test has seen enough of it.

Every wait has a deadline, and every process that a test started is ended with the test.
"""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

#: Seconds that a program may take: far more than any of them needs, also on a busy machine.
DEADLINE = 60.0

Command = Sequence[str | Path]


@dataclass(frozen=True)
class Run:
    """The result of a program that has ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """Standard output, line by line."""
        return self.out.splitlines()


def base_environment() -> dict[str, str]:
    """The variables that every program gets; the tester's own shell must not matter."""
    return {"PATH": os.environ["PATH"], "LC_ALL": "C"}


def run(
    command: Command,
    env: Mapping[str, str],
    *,
    input: str = "",
    cwd: Path | None = None,
    deadline: float = DEADLINE,
) -> Run:
    """Run a program to its end; it and its children die at the deadline."""
    with Started(command, env, cwd=cwd) as started:
        return started.finish(input=input, deadline=deadline)


class Started:
    """A program that is running; left by `with`, it and its children are dead."""

    def __init__(self, command: Command, env: Mapping[str, str], *, cwd: Path | None = None):
        self._command = [str(part) for part in command]
        self._process = subprocess.Popen(
            self._command,
            env={**base_environment(), **env},
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A group of its own, so that the children can be ended with it.
            start_new_session=True,
        )
        # Of standard output: the text that was read, and how much of it the test has received.
        self._seen, self._taken = "", 0

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for(self, line: str, deadline: float = DEADLINE) -> "Started":
        """Wait until the program has printed this line."""
        while self.next_line(deadline) != line:
            pass
        return self

    def tell(self, line: str) -> None:
        """Write a line to the program."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def next_line(self, deadline: float = DEADLINE) -> str:
        """The next line of standard output."""
        assert self._process.stdout is not None
        until = time.monotonic() + deadline
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while "\n" not in self._seen[self._taken :]:
                if not selector.select(max(0.0, until - time.monotonic())):
                    raise TimeoutError(f"no line within {deadline} s after {self._seen!r}")
                read = os.read(self._process.stdout.fileno(), 65536).decode()
                if not read:
                    raise AssertionError(f"ended too early: {self.finish()}")
                self._seen += read
        end = self._seen.index("\n", self._taken)
        line = self._seen[self._taken : end]
        self._taken = end + 1
        return line

    def finish(self, *, input: str = "", deadline: float = DEADLINE) -> Run:
        """Close standard input and wait for the end."""
        try:
            out, err = self._process.communicate(input, timeout=deadline)
        except subprocess.TimeoutExpired as late:
            self.kill()
            out, err = self._process.communicate()
            raise TimeoutError(
                f"{self._command} ran for more than {deadline} s: {self._seen + out!r} {err!r}"
            ) from late
        return Run(self._process.returncode, self._seen + out, err)

    def kill(self) -> None:
        """SIGKILL, for the program and its children."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(timeout=DEADLINE)

    def __enter__(self) -> "Started":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None and not stream.closed:
                stream.close()
