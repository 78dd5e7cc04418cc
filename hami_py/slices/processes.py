"""Who is in a slice, as ``/proc`` tells it.

A process that has called CUDA stands in the slice's account. One that has not yet is only known by
the ``HAMI_SLICE`` in its environment, and a daemon may have overwritten that (to show a title in
``ps``). What is left of such a one is our library, mapped into it: then any slice that is older
than the process may be its own.
"""

import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hami_py.config import HAMI_SLICE, LD_PRELOAD, LIBRARY_NAME, LIMITS

_TICKS = os.sysconf("SC_CLK_TCK")

EXEC_DEADLINE = 1.0
"""Seconds. A process that executes a program is without an environment for microseconds."""


@dataclass(frozen=True)
class Environments:
    """What the environments of this user's processes say.

    Attributes:
        inside: PIDs by slice directory.
        anywhere: when the processes started, in seconds since boot, that have our library and an
            environment that says nothing.
    """

    inside: Mapping[str, frozenset[int]] = field(default_factory=dict)
    anywhere: tuple[float, ...] = ()

    def may_be_in(self, directory: Path, boot_time: float | None) -> bool:
        """Whether a process is, or may be, in this slice, which was made then."""
        if self.inside.get(str(directory)):
            return True
        # Started in the slice, so after it was made; the kernel counts in whole ticks.
        made = 0.0 if boot_time is None else boot_time - 1 / _TICKS
        return any(started >= made for started in self.anywhere)


def read_environments(since: float = 0.0) -> Environments:
    """Look at every process of ours.

    Args:
        since: when the oldest slice was made that is asked about, in seconds since boot; what is
            mapped into older processes does not matter, and is the slow part.
    """
    inside: dict[str, set[int]] = {}
    anywhere: list[float] = []
    for process in Path("/proc").glob("[0-9]*"):
        pid = int(process.name)
        try:
            variables = environment_of(pid)
        except OSError:
            # Another user's, or already gone.
            continue
        slices = _value(variables, HAMI_SLICE)
        for directory in filter(None, slices.split(":")):
            inside.setdefault(directory, set()).add(pid)
        if slices or LIBRARY_NAME in _value(variables, LD_PRELOAD):
            continue
        started = start_time(pid) / _TICKS
        if started >= since - 1 / _TICKS and _has_library(pid):
            anywhere.append(started)
    return Environments({key: frozenset(pids) for key, pids in inside.items()}, tuple(anywhere))


def environment_of(pid: int) -> list[bytes]:
    """The variables that a process was started with, as NAME=VALUE.

    Whoever has just started a program may find it where the kernel has dropped the old environment
    and not yet noted where the new one lies. Then it seems to have none: it is asked again.

    Raises:
        OSError: it is another user's, or gone.
    """
    place = Path(f"/proc/{pid}/environ")
    deadline = time.monotonic() + EXEC_DEADLINE
    variables = place.read_bytes()
    while not variables and _is_executing(pid) and time.monotonic() < deadline:
        time.sleep(0.001)
    # Once more: it may have been noted between our two looks.
    return (variables or place.read_bytes()).split(b"\0")


def start_time(pid: int) -> int:
    """When a process started, in clock ticks since boot; 0 = unknown."""
    state = _state(pid)
    return state[1] if state else 0


def is_running(pid: int, started: int) -> bool:
    """Whether this very process is there and no zombie."""
    state = _state(pid)
    return state is not None and state[1] == started and state[0] not in "ZX"


def pid_namespace() -> int:
    """Where our PIDs mean something: the inode of our PID namespace; 0 = unknown."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def command_of(pid: int) -> tuple[str, ...]:
    """A process's command line; empty where it cannot be read."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(os.fsdecode(word) for word in line.rstrip(b"\0").split(b"\0") if line)


def interpreter() -> str | None:
    """The Python that runs us; None where it is part of another program."""
    try:
        is_it = bool(sys.executable) and Path("/proc/self/exe").samefile(sys.executable)
    except OSError:
        return None
    return sys.executable if is_it else None


def mapped_files(pid: int | str) -> list[str]:
    """The files that are mapped into a process, each once; none where that cannot be read."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except OSError:
        return []
    paths = ("/" + line.partition("/")[2] for line in maps.splitlines() if "/" in line)
    # A file that was replaced since, as an update does it, is still the one that is mapped.
    return list(dict.fromkeys(path.removesuffix(" (deleted)") for path in paths))


def _value(variables: list[bytes], name: str) -> str:
    prefix = name.encode() + b"="
    return next((os.fsdecode(v[len(prefix) :]) for v in variables if v.startswith(prefix)), "")


def _is_executing(pid: int) -> bool:
    """It has a program, and no place for an environment yet; the kernel's own have no program."""
    fields = _fields(pid)
    try:
        return len(fields) > 48 and fields[48] == "0" and bool(Path(f"/proc/{pid}/exe").readlink())
    except OSError:
        return False


def _has_library(pid: int) -> bool:
    """Our library is in it, and not one that was given to a container with its limits."""
    for path in mapped_files(pid):
        if Path(path).name == LIBRARY_NAME:
            # As the process sees it.
            return not Path(f"/proc/{pid}/root{path}").with_name(LIMITS).exists()
    return False


def _state(pid: int) -> tuple[str, int] | None:
    """State and start time."""
    fields = _fields(pid)
    return (fields[0], int(fields[19])) if len(fields) > 19 else None


def _fields(pid: int) -> list[str]:
    """What ``/proc/<pid>/stat`` says after pid and name, so from field 3 of proc(5) on."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    # The name in parentheses may hold anything, also parentheses and blanks.
    return stat.rpartition(")")[2].split()


def lock_holders(path: Path) -> frozenset[int]:
    """The processes that have locked a file, as far as ``/proc/locks`` tells."""
    with suppress(OSError, ValueError):
        inode = str(path.stat().st_ino)
        locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        # "1: FLOCK ADVISORY READ 4711 08:01:131 0 EOF"; 0 is a process that we cannot name.
        return frozenset(
            int(fields[4])
            for fields in locks
            if len(fields) > 5
            and fields[1] == "FLOCK"
            and fields[5].rpartition(":")[2] == inode
            and int(fields[4]) > 0
        )
    return frozenset()
