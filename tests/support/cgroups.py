"""Cgroups (version 2) that a test makes and removes; no controller is needed."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from support.running import DEADLINE, Command


def mount() -> Path | None:
    """Where this machine has cgroups of version 2."""
    rows = (line.split(" ") for line in Path("/proc/self/mounts").read_text().splitlines())
    return next((Path(row[1]) for row in rows if row[2] == "cgroup2"), None)


@contextlib.contextmanager
def tree(name: str) -> Iterator[Path]:
    """The directory of a new cgroup. It and all below it are removed; their programs must end."""
    root = mount()
    assert root is not None
    path = root / name
    path.mkdir()
    try:
        yield path
    finally:
        until = time.monotonic() + DEADLINE
        for each in sorted([*path.glob("**/"), path], reverse=True):
            while each.is_dir():
                try:
                    each.rmdir()
                except OSError:
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.01)


def inside(cgroup: Path, command: Command) -> Command:
    """The command, as the program of a process in the cgroup."""
    enter = 'echo $$ >"$0/cgroup.procs" && exec "$@"'
    return ["sh", "-c", enter, cgroup, *command]
