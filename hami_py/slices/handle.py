"""``Slice``: a slice as an object of the Python API.

The slice is created when it is entered or first used, whichever comes first. So one class supports
``with`` and ``async with``, and the latter does not block the event loop. From then on this process
holds the slice (``hold``) until it closes it. The work is done by the other modules.

``asyncio`` is imported where it is used: importing it takes as long as the rest of ``hami run``,
and a caller that awaits has imported it already.
"""

import subprocess
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from hami_py import config, gpu
from hami_py.errors import StateError
from hami_py.model import (
    Event,
    Limits,
    Mode,
    Priority,
    Shares,
    Sizes,
    SliceProcess,
    Summary,
    Usage,
    legible,
    parse_arguments,
)
from hami_py.slices import coordinator
from hami_py.slices.layers import Layer, card_usage, combined, read_from_outside, reclaim_dead
from hami_py.slices.prepare import Opened, open_named
from hami_py.slices.programs import Command, Word
from hami_py.slices.registry import processes_in, resize
from hami_py.slices.watch import Watcher

if TYPE_CHECKING:
    import asyncio.subprocess

    from typing_extensions import Self


class Slice:
    """A slice: the programs started in it share its limits.

        with hami.slice(gpumem="4GiB") as s:
            s.run(["python", "train.py"], check=True)

    Several threads may use it. Methods that read or change the slice take a few milliseconds, and
    wait at most 10 s for a lock. A coroutine calls them through ``asyncio.to_thread``, or uses
    ``async with``, ``create_subprocess_exec`` and ``watch``.

    Every method raises ``StateError`` if the slice is closed, or if its files cannot be read.
    """

    def __init__(
        self, name: str | None, opener: Callable[[], Opened], opened: Opened | None = None
    ) -> None:
        """Internal: ``hami.slice`` and ``hami.open_slice`` create these objects."""
        self._name = name
        self._opener = opener
        self._opened = opened
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._summary: Summary | None = None

    # Identity.

    @property
    def name(self) -> str | None:
        """Its name; None = it has no name."""
        return self._opened.hold.record.name if self._opened else self._name

    @property
    def id(self) -> str:
        """Its unique id, which is also the name of its directory."""
        return self.directory.name

    @property
    def directory(self) -> Path:
        """The directory of its files."""
        opened = self._opened or self._open()
        return opened.hold.directory

    def __repr__(self) -> str:
        state = "closed" if self._closed.is_set() else "open" if self._opened else "not created yet"
        names = (self.name, self._opened.hold.directory.name if self._opened else None)
        return f"<hami slice {' '.join(filter(None, names))} ({state})>"

    def __reduce__(self) -> "tuple[Callable[[str], Slice], tuple[str]]":
        """Another process opens the same slice, which must exist and be held until then."""
        return _open_again, (self.id,)

    # Holding it.

    def __enter__(self) -> "Self":
        self._open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> "Self":
        import asyncio  # noqa: PLC0415

        _opened, notes = await asyncio.to_thread(self._open_quietly)
        _warn(notes, 3)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        import asyncio  # noqa: PLC0415

        # Shielded from cancellation: closing takes only milliseconds.
        await asyncio.shield(asyncio.to_thread(self.close))

    def close(self) -> None:
        """Release the slice. Closing it again has no effect.

        The slice is removed, unless it is kept, other processes hold it, or processes still run in
        it. In that case it remains until the last of them has ended; creating the next slice then
        removes it.

        Raises:
            StateError: its directory cannot be removed now; creating the next slice retries.
        """
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            if self._opened:
                with suppress(StateError):
                    self._summary = self._opened.summary()
                self._opened.hold.release()

    # Running programs in it.

    def run(
        self,
        command: Command,
        *,
        env: Mapping[str, str] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> subprocess.CompletedProcess[Any]:
        """Run a program in the slice and wait for it, like ``subprocess.run``.

        ``env`` is its environment without a slice, None = this process's.

        Raises:
            Exception: as ``subprocess.run``.
        """
        return subprocess.run(command, env=self.environment(env), **options)  # noqa: PLW1510

    def popen(
        self,
        command: Command,
        *,
        env: Mapping[str, str] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> subprocess.Popen[Any]:
        """Start a program in the slice, like ``subprocess.Popen``.

        ``env`` is its environment without a slice, None = this process's.

        Raises:
            Exception: as ``subprocess.Popen``.
        """
        return subprocess.Popen(command, env=self.environment(env), **options)

    async def create_subprocess_exec(
        self,
        program: Word,
        *arguments: Word,
        env: Mapping[str, str] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> "asyncio.subprocess.Process":
        """Start a program in the slice, like ``asyncio.create_subprocess_exec``.

        ``env`` is its environment without a slice, None = this process's.

        Raises:
            Exception: as ``asyncio.create_subprocess_exec``.
        """
        import asyncio  # noqa: PLC0415

        environment = await asyncio.to_thread(self.environment, env)
        return await asyncio.create_subprocess_exec(program, *arguments, env=environment, **options)

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment that puts a program into the slice, to start it with other functions.

        Args:
            base: the program's environment without a slice; None = this process's.

        Returns:
            ``base`` with ``LD_PRELOAD`` and ``HAMI_SLICE`` and, if cards were chosen, without
            ``CUDA_VISIBLE_DEVICES``.
        """
        opened = self._open()
        if not opened.hold.directory.is_dir():
            raise StateError(self._what(), "its directory was removed", "create another slice")
        settings = config.read()
        # The coordinator may have been killed since the slice was created.
        _warn(coordinator.ensure(settings, opened.hold.directory), 3)
        return opened.environment(settings.environment if base is None else base)

    # Limits and usage.

    def limits(self) -> Limits:
        """The effective limits of the programs in it, including those of the slices around it.

        They hold for programs that load the preload library; every program started here does.
        """
        return Limits(tuple(combined(self._layers())), "slice", "preload")

    def usage(self) -> Usage:
        """The current usage of the slice by card and process, in bytes and seconds."""
        for directory in self._open().slices:
            reclaim_dead(directory)
        layers = self._layers()
        effective = list(combined(layers))
        free = gpu.memory_free([limit.uuid for limit in effective])
        return Usage(tuple(card_usage(limit, layers, free.get(limit.uuid)) for limit in effective))

    def summary(self) -> Summary:
        """The use by its programs, from its creation until now, or until it was closed.

        with hami.slice(gpumem="4GiB", gpucores=30) as s:
            s.run(["python", "train.py"], check=True)
        for card in s.summary().cards:
            print(card.memory_peak, "of", card.memory_limit, card.refusals, "refused")
        """
        if self._summary is not None:
            return self._summary
        return self._open().summary()

    def processes(self) -> tuple[SliceProcess, ...]:
        """Its current processes by pid, including those that have not called CUDA yet."""
        opened = self._open()
        return processes_in(opened.hold.directory, opened.library)

    def resize(
        self,
        gpumem: Sizes | None = None,
        *,
        gpucores: Shares | None = None,
        mode: Mode | None = None,
        priority: Priority | None = None,
    ) -> None:
        """Change at least one limit; all new limits are in force when this returns.

        Limits that are not named stay. A higher limit is available at once. If a memory limit falls
        below the usage, programs keep their memory, and new memory is refused until enough has been
        released (event ``over``, then ``within``). A share, mode or priority holds from the next
        launch on (event ``share``).

        Args:
            gpumem: one size for every card of the slice, or sizes by card (UUID or index); the
                limits of cards that are not named stay. A size above the card's own is lowered to
                it, with a ``UserWarning``.
            gpucores: percent of the cards' time, or percent by card; 100 or ``"none"`` = no limit.
                None = unchanged.
            mode: ``hard`` or ``soft``, on every card.
            priority: ``low``, ``normal`` or ``high``, on every card.

        Raises:
            InvalidValue: a value is invalid, or there is none; nothing was changed.
            UnknownCard: the slice has no such card; nothing was changed.
            NoDriver, NoDevice, DriverError: NVML cannot list the cards; nothing was changed.
            StateError: the limits page cannot be written.
        """
        request = parse_arguments(gpumem, gpucores, mode, priority)
        _warn(resize(config.read(), self._open().hold.directory, request), 3)

    # Events.

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        """The events of the slice as they happen, checked 20 times a second.

        The first events summarise what happened before: the processes in it, the requests refused
        so far, and whether it is over its limit. So no event is lost before the first check.

            for event in s.events(timeout=10):
                if event.kind == "refused":
                    print(event.pid, "was refused", event.count, "times on", event.card)

        Args:
            timeout: seconds until the iterator ends; None = until the slice is closed, by this or
                another thread.
        """
        return Watcher(self._open().hold.directory, self._closed).events(timeout)

    async def watch(self, timeout: float | None = None) -> AsyncIterator[Event]:
        """The same for a coroutine: ``async for event in s.watch(): ...``."""
        import asyncio  # noqa: PLC0415

        opened, _notes = await asyncio.to_thread(self._open_quietly)
        watcher = Watcher(opened.hold.directory, self._closed)
        async with aclosing(watcher.watch(timeout)) as events:
            async for event in events:
                yield event

    def _open(self) -> Opened:
        """Create the slice if necessary; messages are attributed to the caller of the method."""
        opened, notes = self._open_quietly()
        _warn(notes, 4)
        return opened

    def _open_quietly(self) -> tuple[Opened, tuple[str, ...]]:
        """The slice, and the first time the messages for the user."""
        with self._lock:
            if self._closed.is_set():
                raise StateError(self._what(), "it is closed", "create or open another")
            if self._opened is not None:
                return self._opened, ()
            self._opened = self._opener()
            return self._opened, self._opened.notes

    def _layers(self) -> list[Layer]:
        return [read_from_outside(directory) for directory in self._open().slices]

    def _what(self) -> str:
        opened = self._opened
        return f"slice {legible(self._name or (opened.hold.directory.name if opened else ''))}"


def _warn(notes: tuple[str, ...], stacklevel: int) -> None:
    for note in notes:
        warnings.warn(note, stacklevel=stacklevel)


def _open_again(slice_id: str) -> Slice:
    opened = open_named(config.read(), slice_id)
    return Slice(None, lambda: opened, opened)
