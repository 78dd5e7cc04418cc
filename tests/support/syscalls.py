"""The system calls of a program, as strace shows them, made comparable between two runs."""

import re
from collections.abc import Mapping
from pathlib import Path

from support.running import Command, Run, run

_DEADLINE = 60.0


def trace(command: Command, env: Mapping[str, str], output: Path) -> list[str]:
    """One line per system call, the program's first, then those of each child.

    The address space is not randomised, so that the C library's own calls are the same each time. A
    child may end before or while its parent waits for it; the calls that only this order adds are
    left out. ``output`` is a new folder for strace's files, one per process.
    """
    _, processes = _strace([f"-E{name}={value}" for name, value in env.items()], command, output)
    return [line for lines in processes for line in lines]


def trace_each(command: Command, output: Path) -> tuple[Run, list[list[str]]]:
    """The result of a command, and the calls of each of its processes since it last called exec."""
    done, processes = _strace([], command, output)
    return done, [_since_exec(lines) for lines in processes]


def _strace(options: list[str], command: Command, output: Path) -> tuple[Run, list[list[str]]]:
    """The result of a command, and for each process one line per system call."""
    output.mkdir()
    strace = ["setarch", "--addr-no-randomize", "strace", "-ff", "-o", str(output / "trace")]
    done = run([*strace, *options, *command], {}, deadline=_DEADLINE)
    by_process = sorted(output.iterdir(), key=lambda path: int(path.suffix[1:]))
    by_chance = re.compile(r"rt_sigreturn\(|.*\? ERESTARTSYS")
    return done, [
        [
            line
            for line in path.read_text().splitlines()
            if re.match(r"\w+\(", line) and not by_chance.match(line)
        ]
        for path in by_process
    ]


def _since_exec(lines: list[str]) -> list[str]:
    starts = [index for index, line in enumerate(lines) if re.match(r"execve\(.* = 0$", line)]
    return lines[starts[-1] :] if starts else []


def without_loading(calls: list[str], libraries: set[str]) -> list[str]:
    """The calls without those that load one of these libraries.

    Loading a library is opening it, up to closing it again. The dynamic linker also sets the
    protection of its relocated data, one call per library; these calls cannot be assigned to a
    library and stay.
    """
    left, inside = [], False
    for call in calls:
        opened = re.match(r'openat\(\S+ "([^"]+)".* = (\d+)$', call)
        if opened and Path(opened[1]).name in libraries:
            inside = True
        if not inside:
            left.append(call)
        if inside and call.startswith("close("):
            inside = False
    return left


def names(calls: list[str]) -> list[str]:
    """The calls' names alone, in order."""
    return [call.split("(", 1)[0] for call in calls]
