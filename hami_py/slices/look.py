"""Looking at a slice from outside, from time to time, until somebody has seen enough."""

import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from threading import Event as Bell

from hami_py._native import ProcessUse
from hami_py.errors import StateError
from hami_py.model import CardLook, Event, Look, ProcessKey, ProcessLook, changes
from hami_py.slices.levels import Level, read_from_outside, strike_off_the_dead

INTERVAL = 0.05
"""Seconds between two looks. One costs a fifth of a millisecond: it reads a file of 356 KiB."""


class Watcher:
    """The events of one slice, for one who watches.

    The first look is held against a slice that nobody has used: so what has happened before is told
    as well, summed up, and nothing is lost between starting a program and watching it.

    Args:
        directory: the slice.
        closed: set when the slice is not to be watched any more.
    """

    def __init__(self, directory: Path, closed: Bell) -> None:
        self._directory = directory
        self._closed = closed
        self._seen = Look()

    def look(self) -> list[Event] | None:
        """What has happened since the last look; None where the slice is gone.

        Raises:
            StateError: it cannot be read.
        """
        try:
            level = read_from_outside(self._directory)
        except StateError:
            # Closed in another thread, it may be half removed.
            if self._directory.exists() and not self._closed.is_set():
                raise
            return None
        # Only now: one that came and went since the last look is seen only dead.
        strike_off_the_dead(self._directory)
        events, self._seen = changes(self._seen, _look(level))
        return events

    def events(self, timeout: float | None) -> Iterator[Event]:
        """Events as they happen, for so many seconds or until the slice is closed."""
        until = _until(timeout)
        while not self._closed.is_set() and (events := self.look()) is not None:
            yield from events
            pause = min(INTERVAL, until - time.monotonic())
            if pause <= 0:
                return
            self._closed.wait(pause)

    async def watch(self, timeout: float | None) -> AsyncGenerator[Event, None]:
        """The same for a coroutine; the files are read in another thread."""
        # Who awaits this has it already; `hami run` does without.
        import asyncio  # noqa: PLC0415

        until = _until(timeout)
        while not self._closed.is_set():
            events = await asyncio.to_thread(self.look)
            if events is None:
                return
            for event in events:
                yield event
            pause = min(INTERVAL, until - time.monotonic())
            if pause <= 0:
                return
            await asyncio.sleep(pause)


def _until(timeout: float | None) -> float:
    return float("inf") if timeout is None else time.monotonic() + timeout


def _look(level: Level) -> Look:
    uuids = [row.uuid for row in level.rows]
    return Look(
        {
            row.uuid: CardLook(
                level.used[i], row.memory, level.refusals[i], row.share, row.mode, row.priority
            )
            for i, row in enumerate(level.rows)
        },
        {
            _key(process): ProcessLook(
                process.alive, {uuid: process.refusals[i] for i, uuid in enumerate(uuids)}
            )
            for process in level.processes
        },
    )


def _key(process: ProcessUse) -> ProcessKey:
    return process.pid_namespace, process.pid, process.start_time
