"""``slice.json``: what a slice is called, who made it and what for.

It is written once, when the slice is made, and only read afterwards. What it says is for people and
for ``hami``; no limit depends on it. Its lock says who holds the slice (``hold``).
"""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hami_py.slices.options import Command
from hami_py.slices.processes import is_running, start_time

RECORD = "slice.json"


@dataclass(frozen=True)
class Record:
    """What ``slice.json`` says.

    Attributes:
        pid: who made it, in its own PID namespace.
        start_time: when that process started, in clock ticks since boot; 0 = unknown.
        command: what it was made for, or by.
        created: UTC, ISO 8601.
        boot_time: the same in seconds since boot, to be held against the start of processes.
        name: what people call it.
        keep: it stays until it is removed.
        relaunched: its maker itself has gone on in it (``limit_this_process``): it holds no lock,
            and lives as long as the slice needs anyone to.
        around: the slices around it, outermost first: what is in it must be in those, too.
        devices: UUIDs for ``CUDA_VISIBLE_DEVICES``; None = left alone.
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

    def is_of(self, pid: int) -> bool:
        """This very process went on in the slice that it had made."""
        return self.relaunched and (self.pid, self.start_time) == (pid, start_time(pid))

    def relaunched_lives(self) -> bool:
        """The process that went on in the slice has not ended yet."""
        return self.relaunched and is_running(self.pid, self.start_time)

    def write(self, descriptor: int) -> None:
        """Write it down. Names of programs may be no text at all."""
        os.write(descriptor, json.dumps(asdict(self)).encode(errors="surrogateescape"))


def new_record(
    command: Command,
    *,
    name: str | None = None,
    keep: bool = False,
    relaunched: bool = False,
    around: Sequence[Path] = (),
    devices: tuple[str, ...] | None = None,
) -> Record:
    """The record of a slice that this process makes now."""
    return Record(
        pid=os.getpid(),
        start_time=start_time(os.getpid()),
        command=_words(command),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        boot_time=time.clock_gettime(time.CLOCK_BOOTTIME),
        name=name,
        keep=keep,
        relaunched=relaunched,
        around=tuple(map(str, around)),
        devices=devices,
    )


def read_record(directory: Path) -> Record | None:
    """What a slice's record says; None where it is missing, or no record."""
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
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _words(command: Command) -> tuple[str, ...]:
    """A command line as ``subprocess`` takes it, as text; one for a shell is a single word."""
    words = [command] if isinstance(command, (str, os.PathLike)) else command
    return tuple(os.fsdecode(word) for word in words)


def _checked(found: Any, key: str, kind: type[Any]) -> Any:  # noqa: ANN401
    value = found[key]
    if type(value) is not kind:
        raise ValueError(key)
    return value


def _texts(found: Any, key: str) -> tuple[str, ...]:  # noqa: ANN401
    value = _checked(found, key, list)
    return tuple(text if isinstance(text, str) else str(text) for text in value)
