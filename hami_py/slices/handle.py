"""``Slice``: a slice in the hands of a Python program.

It is made when it is entered or first used, whichever comes first, so that ``with`` and ``async
with`` are the same object and the second does not block the loop. From then on this process holds
it (``hold``) until it closes it. Everything else here is one line of somebody else's work.

``asyncio`` is imported where it is used: it takes as long to load as all the rest of ``hami run``,
and whoever awaits something has it already.
"""

import subprocess
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

from hami_py import config, gpu
from hami_py.errors import StateError
from hami_py.model import (
    Event,
    Limits,
    Mode,
    Priority,
    Shares,
    SliceProcess,
    Usage,
    legible,
    parse_arguments,
)
from hami_py.slices import coordinator
from hami_py.slices.levels import (
    Level,
    card_usage,
    combined,
    read_from_outside,
    strike_off_the_dead,
)
from hami_py.slices.look import Watcher
from hami_py.slices.prepare import Opened
from hami_py.slices.registry import processes_in
from hami_py.slices.resize import resize

if TYPE_CHECKING:
    import asyncio.subprocess

    from typing_extensions import Self, Unpack

    from hami_py.slices.options import Command, ExecOptions, PopenOptions, RunOptions, Word


class Slice:
    """A slice: limits that the programs started in it share.

        with hami.slice(gpumem="4GiB") as s:
            s.run(["python", "train.py"], check=True)

    It may be used from several threads. Methods that read or change the slice take a few
    milliseconds, and wait for a lock for 10 s at most: a coroutine calls them through
    ``asyncio.to_thread``, or uses ``async with``, ``create_subprocess_exec`` and ``watch``.

    Every method raises ``StateError`` once the slice is closed, or where its files cannot be read.
    """

    def __init__(
        self, name: str | None, opener: Callable[[], Opened], opened: Opened | None = None
    ) -> None:
        """Not for callers: ``hami.slice`` and ``hami.open_slice`` make these."""
        self._name = name
        self._opener = opener
        self._opened = opened
        self._lock = threading.Lock()
        self._closed = threading.Event()

    # What it is.

    @property
    def name(self) -> str | None:
        """What its maker called it; None = nothing."""
        return self._opened.hold.record.name if self._opened else self._name

    @property
    def id(self) -> str:
        """Its unique name, also the name of its directory."""
        return self.directory.name

    @property
    def directory(self) -> Path:
        """Where its files are."""
        opened = self._opened or self._open()
        return opened.hold.directory

    def __repr__(self) -> str:
        state = "closed" if self._closed.is_set() else "open" if self._opened else "not made yet"
        shown = self._opened.hold.directory.name if self._opened else self._name
        return f"<hami slice {shown or ''} ({state})>"

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

        # Also where the task is being cancelled: it is a matter of milliseconds.
        await asyncio.shield(asyncio.to_thread(self.close))

    def close(self) -> None:
        """Hold the slice no more. It is no error to close it again.

        The slice is removed, unless it is to be kept, others hold it, or processes are still
        running in it. Then it lives on until the last of them has ended, and is removed by whoever
        makes the next slice.

        Raises:
            StateError: its directory cannot be looked after now; the next start will.
        """
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            if self._opened:
                self._opened.hold.release()

    # Running programs in it.

    @overload
    def run(
        self,
        command: "Command",
        *,
        text: Literal[True],
        encoding: str | None = None,
        errors: str | None = None,
        env: Mapping[str, str] | None = None,
        **options: "Unpack[RunOptions]",
    ) -> subprocess.CompletedProcess[str]: ...
    @overload
    def run(
        self,
        command: "Command",
        *,
        text: bool | None = None,
        encoding: str,
        errors: str | None = None,
        env: Mapping[str, str] | None = None,
        **options: "Unpack[RunOptions]",
    ) -> subprocess.CompletedProcess[str]: ...
    @overload
    def run(
        self,
        command: "Command",
        *,
        text: Literal[False] | None = None,
        env: Mapping[str, str] | None = None,
        **options: "Unpack[RunOptions]",
    ) -> subprocess.CompletedProcess[bytes]: ...
    def run(
        self, command: "Command", *, env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.CompletedProcess[Any]:
        """Run a program in the slice and wait for it, as ``subprocess.run`` does.

        Args:
            command: program and arguments.
            env: the environment that it would have without us; None = this process's.
            options: everything else that ``subprocess.run`` takes.

        Raises:
            Exception: whatever ``subprocess.run`` raises.
        """
        return subprocess.run(command, env=self.environment(env), **options)  # noqa: PLW1510

    @overload
    def popen(
        self,
        command: "Command",
        *,
        text: Literal[True],
        encoding: str | None = None,
        errors: str | None = None,
        env: Mapping[str, str] | None = None,
        **options: "Unpack[PopenOptions]",
    ) -> subprocess.Popen[str]: ...
    @overload
    def popen(
        self,
        command: "Command",
        *,
        text: bool | None = None,
        encoding: str,
        errors: str | None = None,
        env: Mapping[str, str] | None = None,
        **options: "Unpack[PopenOptions]",
    ) -> subprocess.Popen[str]: ...
    @overload
    def popen(
        self,
        command: "Command",
        *,
        text: Literal[False] | None = None,
        env: Mapping[str, str] | None = None,
        **options: "Unpack[PopenOptions]",
    ) -> subprocess.Popen[bytes]: ...
    def popen(
        self, command: "Command", *, env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[Any]:
        """Start a program in the slice, as ``subprocess.Popen`` does.

        Args:
            command: program and arguments.
            env: the environment that it would have without us; None = this process's.
            options: everything else that ``subprocess.Popen`` takes.

        Raises:
            Exception: whatever ``subprocess.Popen`` raises.
        """
        return subprocess.Popen(command, env=self.environment(env), **options)

    async def create_subprocess_exec(
        self,
        program: "Word",
        *arguments: "Word",
        env: Mapping[str, str] | None = None,
        **options: "Unpack[ExecOptions]",
    ) -> "asyncio.subprocess.Process":
        """Start a program in the slice, as ``asyncio.create_subprocess_exec`` does.

        Args:
            program: the program.
            arguments: its arguments.
            env: the environment that it would have without us; None = this process's.
            options: everything else that ``asyncio.create_subprocess_exec`` takes.

        Raises:
            Exception: whatever ``asyncio.create_subprocess_exec`` raises.
        """
        import asyncio  # noqa: PLC0415

        environment = await asyncio.to_thread(self.environment, env)
        return await asyncio.create_subprocess_exec(program, *arguments, env=environment, **options)

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment that puts a program into the slice, for programs that others start.

        Args:
            base: the environment that the program would have without us; None = this process's.

        Returns:
            The base with ``LD_PRELOAD``, ``HAMI_SLICE`` and, where cards were chosen,
            ``CUDA_VISIBLE_DEVICES`` set.
        """
        opened = self._open()
        if not opened.hold.directory.is_dir():
            raise StateError(self._what(), "its directory was removed", "make another slice")
        settings = config.read()
        # It may have been killed since the slice was made.
        _warn(coordinator.ensure(settings, opened.hold.directory), 3)
        return opened.environment(settings.environment if base is None else base)

    # What holds in it, and what is used.

    def limits(self) -> Limits:
        """The limits that hold for the programs in it; with those of the slices around it.

        They bind a program that the preload library is in, as it is in every one started here.
        """
        return Limits(tuple(combined(self._levels())), "slice", "preload")

    def usage(self) -> Usage:
        """What the slice uses now, in bytes and seconds, per card and process."""
        for directory in self._open().slices:
            strike_off_the_dead(directory)
        levels = self._levels()
        held = list(combined(levels))
        free = gpu.memory_free([limit.uuid for limit in held])
        return Usage(tuple(card_usage(limit, levels, free.get(limit.uuid)) for limit in held))

    def processes(self) -> tuple[SliceProcess, ...]:
        """The processes in it now, by pid; also those that have not called CUDA yet."""
        return processes_in(self._open().hold.directory)

    def resize(
        self,
        gpumem: str | Mapping[str, str] | None = None,
        *,
        gpucores: Shares | None = None,
        mode: Mode | None = None,
        priority: Priority | None = None,
    ) -> None:
        """Set other limits, at least one; all of them are in force when this returns.

        What is not named stays as it is. More can be had at once. Less memory than is in use takes
        nothing away: new memory is refused until enough was given back (event ``over``, then
        ``within``). A share, mode or priority counts from the next launch on (event ``share``).

        Args:
            gpumem: one size for every card of the slice, or sizes by card (UUID or index); the
                limits of cards that are not named stay. A size above the card's own is lowered to
                it, with a ``UserWarning``.
            gpucores: percent of the cards' time, or percent by card; 100 or ``"none"`` = no limit.
                None leaves it as it is.
            mode: ``hard`` or ``soft``, on every card.
            priority: ``low``, ``normal`` or ``high``, on every card.

        Raises:
            InvalidValue: a value that is not understood, or none; nothing was changed.
            UnknownCard: the slice has no such card; nothing was changed.
            NoDriver, NoDevice, DriverError: the cards cannot be asked; nothing was changed.
            StateError: the page cannot be written.
        """
        asked = parse_arguments(gpumem, gpucores, mode, priority)
        _warn(resize(config.read(), self._open().hold.directory, asked), 3)

    # What happens in it.

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        """What happens in the slice, as it happens; looked for 20 times a second.

        It begins with what is so already, summed up: who is in it, what was refused so far, and
        whether it is over its limit. So nothing is missed that happens before the first look.

            for event in s.events(timeout=10):
                if event.kind == "refused":
                    print(event.pid, "was refused", event.count, "times on", event.card)

        Args:
            timeout: seconds after which it ends; None = when the slice is closed, here or in
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
        """Make it, or find that it is there; notes go to whoever called the method."""
        opened, notes = self._open_quietly()
        _warn(notes, 4)
        return opened

    def _open_quietly(self) -> tuple[Opened, tuple[str, ...]]:
        """The slice, and what the user must be told the first time."""
        with self._lock:
            if self._closed.is_set():
                raise StateError(self._what(), "it is closed", "make or open another")
            if self._opened is not None:
                return self._opened, ()
            self._opened = self._opener()
            return self._opened, self._opened.notes

    def _levels(self) -> list[Level]:
        return [read_from_outside(directory) for directory in self._open().slices]

    def _what(self) -> str:
        opened = self._opened
        return f"slice {legible(self._name or (opened.hold.directory.name if opened else ''))}"


def _warn(notes: tuple[str, ...], stacklevel: int) -> None:
    for note in notes:
        warnings.warn(note, stacklevel=stacklevel)
