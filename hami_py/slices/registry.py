"""The slices of this user: listed, found by name, removed.

The runtime directory is the register: it belongs to the user and nobody else can enter it, so what
is in it is what the user may see and change, root included.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hami_py import gpu
from hami_py._native import ProcessUse, same_card
from hami_py.config import Settings
from hami_py.errors import HamiError, InvalidValue, SliceInUse, StateError, UnknownSlice
from hami_py.model import (
    Card,
    SliceCard,
    SliceInfo,
    SliceProcess,
    SliceProcessCard,
    SliceState,
    legible,
)
from hami_py.slices import hold
from hami_py.slices.hold import Hold
from hami_py.slices.levels import (
    Level,
    has_touched,
    read_from_outside,
    strike_off_the_dead,
    times_of,
)
from hami_py.slices.processes import (
    Environments,
    command_of,
    lock_holders,
    pid_namespace,
    read_environments,
)
from hami_py.slices.record import RECORD, Record, read_record
from hami_py.slices.runtime import locked, runtime_directory, usable

SHOWN_ID = 12
"""Characters of an id that are shown where a person reads it."""


@dataclass(frozen=True)
class _Entry:
    """What the directory alone says of a slice."""

    directory: Path
    record: Record | None
    held: bool
    in_use: bool
    inside: frozenset[int]


def list_slices(settings: Settings) -> list[SliceInfo]:
    """The slices of this user, oldest first; not those that only wait to be cleared away.

    Raises:
        StateError: the runtime directory cannot be used.
    """
    entries: list[_Entry] = []
    with _register(settings) as slices:
        directories = list(slices.iterdir())
        environments = read_environments(hold.oldest(directories))
        for directory in directories:
            if not hold.is_abandoned(directory, environments):
                entries.append(_entry(directory, environments))
    try:
        cards = gpu.cards()
    except HamiError:
        # Then the cards have no index; everything else is known.
        cards = []
    entries.sort(key=lambda entry: entry.record.boot_time if entry.record else 0.0)
    found = (_info(entry, cards) for entry in entries)
    return [info for info in found if info is not None]


def hold_named(settings: Settings, name: str) -> Hold:
    """Hold the slice of this name or id.

    Raises:
        UnknownSlice: there is none, or more than one is meant.
        StateError: it is damaged.
    """
    with _register(settings) as slices:
        return hold.hold(_find(slices, name))


def processes_in(directory: Path) -> tuple[SliceProcess, ...]:
    """The processes in a slice now, by pid.

    Raises:
        StateError: it cannot be read.
    """
    environments = read_environments(hold.oldest([directory]))
    return _processes(read_from_outside(directory), hold.pids_in(directory, environments))


def remove(settings: Settings, name: str) -> None:
    """Remove the slice of this name or id.

    Raises:
        UnknownSlice: there is none, or more than one is meant.
        SliceInUse: processes are in it, or hold it.
        StateError: its files cannot be removed.
    """
    with _register(settings) as slices:
        directory = _find(slices, name)
        entry = _entry(directory, read_environments(hold.oldest([directory])))
        if entry.held or entry.in_use:
            holders = lock_holders(directory / RECORD)
            raise SliceInUse(f"slice {legible(name)}", entry.inside | holders)
        hold.remove_files(directory)
        if directory.exists():
            fix = f"look at what is in it, then `rm -r {directory}`"
            raise StateError(f"slice {legible(name)}", "something in it cannot be removed", fix)


@contextmanager
def _register(settings: Settings) -> Iterator[Path]:
    """The directory of the slices, locked: it does not change meanwhile."""
    slices = runtime_directory(settings.runtime_directory) / "slices"
    with usable(slices):
        slices.mkdir(mode=0o700, exist_ok=True)
        with locked(slices):
            yield slices


def _find(slices: Path, name: str) -> Path:
    # Python callers may pass the name of a slice that has none.
    if not isinstance(name, str):
        raise InvalidValue("name_or_id", repr(name), "write a slice's name or id as a string")
    directories = sorted(slices.iterdir())
    records = [(directory, read_record(directory)) for directory in directories]
    named = [directory for directory, record in records if record and record.name == name]
    # A name goes before the beginning of an id.
    found = named or [d for d in directories if name and d.name.startswith(name)]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(directory.name[:SHOWN_ID] for directory in found)
        raise UnknownSlice(
            f"slice {legible(name)}", f"several ids begin so: {ids}", "write more of it"
        )
    fix = "`hami ps` lists those there are"
    raise UnknownSlice(f"slice {legible(name)}", "you have none of this name or id", fix)


def _entry(directory: Path, environments: Environments) -> _Entry:
    record = read_record(directory)
    held = hold.is_held(directory) or (record is not None and record.relaunched_lives())
    in_use = hold.is_in_use(directory, record, environments)
    return _Entry(directory, record, held, in_use, hold.pids_in(directory, environments))


def _info(entry: _Entry, cards: list[Card]) -> SliceInfo | None:
    """What is to be told of it; None where it has gone meanwhile."""
    level, damage = None, None
    strike_off_the_dead(entry.directory)
    try:
        level = read_from_outside(entry.directory)
    except StateError as error:
        # It may be half removed; under the lock it is damaged or gone.
        with usable(entry.directory), locked(entry.directory.parent):
            if not entry.directory.exists():
                return None
        damage = error.why
    record = entry.record
    if record is None:
        damage = damage or f"its {RECORD} cannot be read"
    return SliceInfo(
        id=entry.directory.name,
        name=record.name if record else None,
        directory=entry.directory,
        state=_state(entry, damage),
        keep=record.keep if record else False,
        created=record.created if record else None,
        command=record.command if record else (),
        cards=_cards(level, cards) if level else (),
        processes=_processes(level, entry.inside),
        damage=damage,
    )


def _state(entry: _Entry, damage: str | None) -> SliceState:
    if damage is not None:
        return "damaged"
    if entry.held:
        return "running"
    if entry.record and entry.record.keep:
        return "running" if entry.in_use else "kept"
    return "ending"


def _cards(level: Level, cards: list[Card]) -> tuple[SliceCard, ...]:
    return tuple(
        SliceCard(
            row.uuid,
            next((card.index for card in cards if same_card(card.uuid, row.uuid)), None),
            row.memory,
            level.used[i],
            level.refusals[i],
            row.share,
            row.mode,
            row.priority,
            *level.times(i),
        )
        for i, row in enumerate(level.rows)
    )


def _processes(level: Level | None, inside: frozenset[int]) -> tuple[SliceProcess, ...]:
    here = pid_namespace()
    members = [process for process in level.processes if process.alive] if level else []
    known = {process.pid for process in members if process.pid_namespace == here}
    found = [SliceProcess(pid, command_of(pid), ()) for pid in inside - known]
    for process in members:
        # A number from elsewhere is another process's here.
        command = command_of(process.pid) if process.pid_namespace == here else ()
        found.append(SliceProcess(process.pid, command, _held(level, process)))
    return tuple(sorted(found, key=lambda process: process.pid))


def _held(level: Level | None, process: ProcessUse) -> tuple[SliceProcessCard, ...]:
    rows = level.rows if level else ()
    return tuple(
        SliceProcessCard(row.uuid, process.memory[i], process.refusals[i], *times_of(process, i))
        for i, row in enumerate(rows)
        if has_touched(process, i)
    )
