"""From what was asked to an environment that a program can be started in."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from hami_py._native import HamiLimit, HamiVariables
from hami_py.config import HAMI_SLICE, Settings
from hami_py.errors import InvalidValue, StateError
from hami_py.model import CardLimit, LimitRequest, Plan, legible, plan, unheard
from hami_py.slices import coordinator
from hami_py.slices.current import cards, directories, shown
from hami_py.slices.environment import compose, require_library
from hami_py.slices.hold import Hold, make
from hami_py.slices.options import Command
from hami_py.slices.record import new_record
from hami_py.slices.registry import hold_named

MAX_LEVELS = 8
"""Slices inside one another that the preload library takes: each is charged for each allocation."""


@dataclass(frozen=True)
class Request:
    """What a slice is to be.

    Attributes:
        command: what will run in it, or who makes it, for people who look at it.
        asked: the limits.
        devices: cards by UUID or index; none = all.
        name: what it is called; checked.
        keep: it stays until it is removed.
        relaunched: this process itself will go on in it.
    """

    command: Command
    asked: LimitRequest = field(default_factory=LimitRequest)
    devices: Sequence[str] = ()
    name: str | None = None
    keep: bool = False
    relaunched: bool = False


@dataclass(frozen=True)
class Opened:
    """A slice that this process holds, and what it takes to start programs in it.

    Attributes:
        hold: the hold.
        library: the preload library.
        slices: the slices of such a program, outermost first; this one is among them.
        notes: what the user must be told, one line each.
    """

    hold: Hold
    library: Path
    slices: tuple[Path, ...]
    notes: tuple[str, ...] = ()

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The environment for a program that would have this one without us."""
        return compose(base, self.library, self.slices, self.hold.record.devices)


@dataclass(frozen=True)
class Prepared:
    """A slice that is ready for a program.

    Attributes:
        directory: of the slice.
        environment: what to start the program with.
        notes: what the user must be told, one line each.
    """

    directory: Path
    environment: dict[str, str]
    notes: tuple[str, ...]


def open_new(settings: Settings, request: Request) -> Opened:
    """A new slice within those that this process is in.

    Raises:
        HamiError: no driver, no such card, or a slice cannot be made here.
        InvalidValue: more cards than a slice can hold, more slices inside one another, or a name
            that another slice has.
    """
    library = require_library(settings.library)
    _require_levels(len(directories(settings)) + 1)
    planned = plan_new(settings, request.asked, request.devices)
    record = new_record(
        request.command,
        name=request.name,
        keep=request.keep,
        relaunched=request.relaunched,
        around=settings.slices,
        devices=planned.devices,
    )
    held = make(settings.runtime_directory, planned.limits, record)
    notes = (*planned.notes, *coordinator.ensure(settings, held.directory))
    return Opened(held, library, (*settings.slices, held.directory), notes)


def plan_new(settings: Settings, asked: LimitRequest, devices: Sequence[str]) -> Plan:
    """What a new slice would be, as the cards and HAMi's variables are now.

    Raises:
        NoDriver, NoDevice, DriverError: the cards cannot be asked.
        UnknownCard: a card is not there, not visible, or limited and not chosen.
        InvalidValue: more cards than a slice can hold.
    """
    planned = plan(cards(settings), asked, devices, shown(settings) if devices else None)
    limits = _announced(planned.limits, asked, _variables(settings))
    return replace(planned, limits=limits, notes=(*planned.notes, *unheard(limits, asked)))


def _variables(settings: Settings) -> HamiVariables:
    """HAMi's variables; the program itself is told of those that cannot be understood."""
    try:
        return HamiVariables(settings.hami_limits)
    except InvalidValue:
        return HamiVariables({})


def _announced(
    rows: Sequence[CardLimit], asked: LimitRequest, variables: HamiVariables
) -> tuple[CardLimit, ...]:
    """The rows with what HAMi's variables say of shares, where nothing else is asked for.

    The program reads its share there itself, but whoever hands out turns sees pages alone.
    """
    said = [variables.limit(number) for number in range(len(rows))]

    def announced(row: CardLimit, limit: HamiLimit) -> CardLimit:
        priority = asked.priority or limit.priority or row.priority
        if row.share is not None or limit.share is None:
            return replace(row, priority=priority)
        mode = asked.mode or limit.mode
        return replace(row, share=limit.share, mode=mode, priority=priority)

    return tuple(announced(row, limit) for row, limit in zip(rows, said, strict=True))


def open_named(settings: Settings, name: str) -> Opened:
    """A slice that is there, by name or id.

    What is started in it is also in the slices that it was made in, and in those that this process
    is in: to join can only lower what may be used.

    Raises:
        UnknownSlice: there is none, or more than one is meant.
        StateError: it is damaged, or a slice around it is gone.
        InvalidValue: more slices inside one another than the preload library takes.
    """
    library = require_library(settings.library)
    held = hold_named(settings, name)
    try:
        around = [Path(directory) for directory in held.record.around]
        for directory in around:
            if not directory.is_dir():
                fix = f"remove it with `hami rm {held.directory.name}`, and make another"
                raise StateError(f"slice {legible(name)}", f"{directory} around it is gone", fix)
        own = settings.slices
        slices = (*own, *(path for path in (*around, held.directory) if path not in own))
        _require_levels(len(slices) + len(directories(settings)) - len(own))
    except BaseException:
        held.release()
        raise
    return Opened(held, library, slices, coordinator.ensure(settings, held.directory))


@contextmanager
def prepared(
    settings: Settings,
    command: Command,
    asked: LimitRequest,
    devices: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    *,
    name: str | None = None,
    keep: bool = False,
) -> Iterator[Prepared]:
    """A new slice within those that this process is in, removed at the end.

    Args:
        settings: of this process.
        command: what will run, for people who look at the slice.
        asked: the limits asked for.
        devices: cards by UUID or index; none = all.
        environment: what the program would have without us; None = this process's.
        name: what people call it.
        keep: it stays at the end.

    Raises:
        HamiError: as ``open_new``.
    """
    opened = open_new(settings, Request(command, asked, devices, name, keep))
    with _held(settings, opened, environment) as ready:
        yield ready


@contextmanager
def joined(settings: Settings, name: str) -> Iterator[Prepared]:
    """A slice that is there, by name or id.

    Raises:
        HamiError: as ``open_named``.
    """
    with _held(settings, open_named(settings, name), None) as ready:
        yield ready


@contextmanager
def _held(
    settings: Settings, opened: Opened, environment: Mapping[str, str] | None
) -> Iterator[Prepared]:
    try:
        base = settings.environment if environment is None else environment
        yield Prepared(opened.hold.directory, opened.environment(base), opened.notes)
    finally:
        opened.hold.release()


def _require_levels(levels: int) -> None:
    if levels > MAX_LEVELS:
        fix = f"run at most {MAX_LEVELS} `hami run` inside one another"
        raise InvalidValue(HAMI_SLICE, f"{levels} slices inside one another", fix)
