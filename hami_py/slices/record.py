"""``slice.json``: a slice's name, its creator and its purpose.

It is written once, when the slice is created, and then only read. People and ``hami`` read it; no
limit depends on it. Its lock marks the processes that hold the slice (``hold``).
"""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hami_py.slices.processes import is_running, start_time
from hami_py.slices.programs import Command

RECORD = "slice.json"


@dataclass(frozen=True)
class Record:
    """The contents of ``slice.json``.

    Attributes:
        pid: the process that created the slice, in its own PID namespace.
        start_time: when that process started, in clock ticks since boot; 0 = unknown.
        command: the command for which, or by which, the slice was created.
        created: the time of creation, UTC, ISO 8601.
        boot_time: the same in seconds since boot, to compare with the start times of processes.
        keep: it remains until it is removed.
        relaunched: its creator restarted itself in it (``limit_this_process``). Such a process has
            no lock; the slice counts as held while the process runs.
        around: the slices around it, outermost first: its processes must be in those too.
        devices: the chosen cards by UUID, in the order in which numbers count them; None = all.
        gang: the name of its gang. The limits page has the gang itself.
        indices: the index of each card in ``hami devices``, by UUID: NVML need not be asked again.
    """

    pid: int
    start_time: int
    command: tuple[str, ...]
    created: str
    boot_time: float
    name: str | None = None
    keep: bool = False
    relaunched: bool = False
    around: tuple[str, ...] = ()
    devices: tuple[str, ...] | None = None
    gang: str | None = None
    indices: Mapping[str, int] = field(default_factory=dict)

    def is_of(self, pid: int) -> bool:
        """Whether this process restarted itself in the slice that it had created."""
        return self.relaunched and (self.pid, self.start_time) == (pid, start_time(pid))

    def relaunched_is_running(self) -> bool:
        """Whether the process that restarted itself in the slice still runs."""
        return self.relaunched and is_running(self.pid, self.start_time)

    def write(self, descriptor: int) -> None:
        """Write the record. Names of programs may contain bytes that are no text."""
        os.write(descriptor, json.dumps(asdict(self)).encode(errors="surrogateescape"))


def new_record(command: Command) -> Record:
    """The record of a slice that this process creates now."""
    return Record(
        pid=os.getpid(),
        start_time=start_time(os.getpid()),
        command=words_of(command),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        boot_time=time.clock_gettime(time.CLOCK_BOOTTIME),
    )


def read_record(directory: Path) -> Record | None:
    """Read a slice's record; None if it is missing or damaged."""
    try:
        found = json.loads((directory / RECORD).read_bytes())
        return Record(
            pid=_checked(found, "pid", int),
            start_time=_checked(found, "start_time", int),
            command=_texts(found, "command"),
            created=_checked(found, "created", str),
            boot_time=_checked(found, "boot_time", float),
            name=None if found["name"] is None else _checked(found, "name", str),
            keep=_checked(found, "keep", bool),
            relaunched=_checked(found, "relaunched", bool),
            around=_texts(found, "around"),
            devices=None if found["devices"] is None else _texts(found, "devices"),
            gang=None if found["gang"] is None else _checked(found, "gang", str),
            indices=_indices(found["indices"]),
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None


def words_of(command: Command) -> tuple[str, ...]:
    """A command line of ``subprocess`` as text; a line for a shell is a single word."""
    words = [command] if isinstance(command, (str, os.PathLike)) else command
    return tuple(os.fsdecode(word) for word in words)


def _checked(found: Any, key: str, kind: type[Any]) -> Any:  # noqa: ANN401
    value = found[key]
    if type(value) is not kind:
        raise ValueError(key)
    return value


def _indices(found: Any) -> dict[str, int]:  # noqa: ANN401
    return {str(uuid): index for uuid, index in dict(found).items() if type(index) is int}


def _texts(found: Any, key: str) -> tuple[str, ...]:  # noqa: ANN401
    value = _checked(found, key, list)
    return tuple(text if isinstance(text, str) else str(text) for text in value)
