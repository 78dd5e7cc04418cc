"""The summary of a slice's use, and the list of slices that have ended.

A slice's files go with it. So its summary is kept for a day, as a line of JSON in
``<runtime>/ended.jsonl``. The runtime directory is on this machine and of this user alone, and is
the same for shells, ``cron`` and services; a home directory may be shared by several machines.
"""

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime, timedelta, timezone
from pathlib import Path

from hami_py.errors import StateError
from hami_py.model import Summary
from hami_py.slices.layers import read_from_outside
from hami_py.slices.record import Record

ENDED = "ended.jsonl"

KEPT_FOR = timedelta(days=1)

LARGEST = 1 << 20
"""Bytes of the file: some thousand slices. When it is larger, its older half goes."""

COMMAND = 4096
"""Characters of a command line. Of a longer one the beginning is kept, and a … at its end."""


def summary_of(directory: Path, record: Record) -> Summary:
    """The summary of a slice until now.

    Raises:
        StateError: it cannot be read.
    """
    return Summary(
        id=directory.name,
        name=record.name,
        command=record.command,
        created=record.created,
        ended=_text(datetime.now(timezone.utc)),
        seconds=time.clock_gettime(time.CLOCK_BOOTTIME) - record.boot_time,
        cards=read_from_outside(directory).cards(record.indices),
    )


def keep(
    directory: Path, record: Record | None, file: Path | None = None, largest: int = LARGEST
) -> None:
    """Keep the summary of a slice that is removed now, unless it cannot be read.

    The caller has the lock of the directory of slices.

    Args:
        directory: the slice.
        record: its record; None = it cannot be read.
        file: where to keep it; None = beside the directory of slices.
        largest: bytes of the file.
    """
    # The slice is removed all the same: its files may be damaged, or the disk full.
    with suppress(OSError, StateError):
        if record is not None:
            summary = summary_of(directory, record)
            words = shortened(summary.command)
            line = json.dumps({**asdict(summary), "command": words}) + "\n"
            _append(file or directory.parent.parent / ENDED, line.encode(), largest)


def ended(runtime: Path, node: Path | None = None) -> list[Summary]:
    """The slices of this user that have ended in the last day, the last one to end last.

    Args:
        runtime: the user's runtime directory.
        node: that of the machine's service, which keeps the slices that it has made.
    """
    # Imported here, because only `hami ps --ended` reads the file.
    import msgspec  # noqa: PLC0415

    since = _text(datetime.now(timezone.utc) - KEPT_FOR)
    found: list[Summary] = []
    for file in (runtime / ENDED, *([] if node is None else [ended_of(node, os.geteuid())])):
        with suppress(OSError):
            for line in file.read_bytes().splitlines():
                # A process may have been killed while it wrote the line.
                with suppress(msgspec.MsgspecError, UnicodeDecodeError):
                    found.append(msgspec.json.decode(line, type=Summary))
    recent = (summary for summary in found if summary.ended >= since)
    return sorted(recent, key=lambda summary: summary.ended)


def ended_of(node: Path, uid: int) -> Path:
    """Where the machine's service keeps a user's slices that have ended."""
    return node / f"ended-{uid}.jsonl"


def shortened(command: Sequence[str], room: int = COMMAND) -> list[str]:
    """The words of a command as text, without what is beyond so many characters."""
    words = list[str]()
    for word in command:
        if room <= 0:
            return [*words, "…"]
        # Names of programs may contain bytes that are no text.
        text = os.fsencode(word).decode(errors="replace")
        words.append(text if len(text) <= room else f"{text[:room]}…")
        room -= len(text) + 1
    return words


def _append(path: Path, line: bytes, largest: int) -> None:
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        if os.fstat(descriptor).st_size + len(line) > largest:
            newer = os.pread(descriptor, largest, largest // 2).partition(b"\n")[2]
            os.ftruncate(descriptor, 0)
            os.write(descriptor, newer)
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


def _text(when: datetime) -> str:
    return when.isoformat(timespec="seconds")
