"""The slices of this user: list, find, resize and remove them.

The runtime directory is the register of slices. It belongs to the user and no one else can enter
it, so its slices are those that the user may see and change, root included.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hami_py import gpu
from hami_py._native import Account, LimitRow, LimitsPage
from hami_py.config import ACCOUNT, LIMITS, Settings
from hami_py.errors import DamagedFile, InvalidValue, SliceInUse, StateError, UnknownSlice
from hami_py.model import (
    Card,
    CardLimit,
    LimitRequest,
    SliceInfo,
    SliceProcess,
    SliceState,
    legible,
    resized,
    too_low,
    use_of,
)
from hami_py.slices import bypass, coordinator, hold
from hami_py.slices.beside import directories
from hami_py.slices.hold import Hold
from hami_py.slices.layers import Layer, limit_of, read_from_outside, reclaim_dead
from hami_py.slices.machine import Machine, MachineHold, is_of_machine, machine
from hami_py.slices.overbooked import overbooked
from hami_py.slices.processes import (
    Environments,
    command_of,
    holders_of,
    pid_namespace,
    place_of,
    read_environments,
    user_name,
    user_of,
)
from hami_py.slices.record import RECORD, Record, read_record
from hami_py.slices.runtime import locked, runtime_directory, usable

SHOWN_ID = 12
"""Characters of an id that tables and messages show."""


@dataclass(frozen=True)
class Found:
    """A slice as its directory and its processes show it.

    Attributes:
        record: None = it cannot be read.
        held: a process holds it.
        in_use: a process is in it, or may be.
        inside: its processes that are in our PID namespace.
    """

    directory: Path
    record: Record | None
    held: bool
    in_use: bool
    inside: frozenset[int]


def list_slices(settings: Settings, *, everyone: bool = False) -> list[SliceInfo]:
    """The slices of this user, oldest first, without those that are only waiting to be removed.

    Args:
        settings: those of this process.
        everyone: with those of other users of the machine that this user may see.

    Raises:
        NoAnswer: the machine's service does not answer, so only ``list_own`` can list some.
        StateError: the runtime directory cannot be used.
    """
    service = machine(settings)
    if service is None:
        return list_own(settings)
    infos = [*list_own(settings), *service.listed(everyone=everyone)]
    return sorted(infos, key=lambda info: info.created or "")


def list_own(settings: Settings) -> list[SliceInfo]:
    """The slices of this user that no service of the machine has made, oldest first.

    Raises:
        StateError: the runtime directory cannot be used.
    """
    entries: list[Found] = []
    with _register(settings) as slices:
        found = list(slices.iterdir())
        environments = read_environments(hold.oldest(found))
        for directory in found:
            if not hold.is_abandoned(directory, environments):
                entries.append(_entry(directory, environments))
    entries.sort(key=lambda entry: entry.record.boot_time if entry.record else 0.0)
    infos = []
    for entry in entries:
        reclaim_dead(entry.directory)
        info = describe(entry, settings.library)
        # Another process may be removing it; under the lock it is either damaged or removed.
        if info.damage is None or _exists(entry.directory):
            infos.append(info)
    return infos


def hold_named(settings: Settings, name: str) -> Hold | MachineHold:
    """Hold the slice with this name or id.

    Raises:
        UnknownSlice: there is no such slice, or the id is ambiguous.
        StateError: it is damaged.
    """
    with _register(settings) as slices:
        service = _if_of_machine(settings, slices, name)
        if service is not None:
            return service.held(Path(service.ask("hold", slice=name)["directory"]))
        directory = _find(slices, name)
        # The next new slice removes it, and `hami ps` does not show it.
        if hold.is_abandoned(directory, read_environments(hold.oldest([directory]))):
            raise _unknown(name)
        return hold.hold(directory)


def processes_in(directory: Path, library: Path) -> tuple[SliceProcess, ...]:
    """The current processes of a slice, by pid.

    Raises:
        StateError: it cannot be read.
    """
    environments = read_environments(hold.oldest([directory]))
    layer, inside = read_from_outside(directory), hold.pids_in(directory, environments)
    return _processes(layer, inside, library)


def remove(settings: Settings, name: str) -> None:
    """Remove the slice with this name or id.

    Raises:
        UnknownSlice: there is no such slice, or the id is ambiguous.
        SliceInUse: processes are in it, or hold it.
        StateError: its files cannot be removed.
    """
    with _register(settings) as slices:
        service = _if_of_machine(settings, slices, name)
        if service is not None:
            service.ask("remove", slice=name)
            return
        directory = _find(slices, name)
        entry = _entry(directory, read_environments(hold.oldest([directory])))
        if entry.held or entry.in_use:
            holders = holders_of(directory / RECORD)
            raise SliceInUse(f"slice {legible(name)}", entry.inside | holders)
        hold.end(directory, entry.record)
        if directory.exists():
            fix = f"check its contents, then run `rm -r {directory}`"
            raise StateError(f"slice {legible(name)}", "a file in it cannot be removed", fix)


def resize(settings: Settings, directory: Path, request: LimitRequest) -> tuple[str, ...]:
    """Change the limits of a slice. Limits that are not requested stay.

    All new limits are in force when this returns.

    Returns:
        Messages for the user, one line each.

    Raises:
        InvalidValue: the request is empty, or names a card twice.
        UnknownCard: the slice has no such card.
        NoDriver, NoDevice, DriverError: NVML cannot list the cards.
        StateError: the limits page cannot be read or written.
    """
    service = machine(settings)
    if service is not None and is_of_machine(settings, directory):
        return tuple(service.ask("set", slice=directory.name, limits=request)["notes"])
    # Locked, because a change of one limit reads and writes the others too.
    with usable(directory), locked(directory):
        try:
            page = LimitsPage.open(directory / LIMITS)
            rows = tuple(map(limit_of, page.rows()))
            whole = not directories(settings)
            cards = gpu.cards()
            new_rows, notes = resized(cards, rows, request, whole=whole)
            changed = [row for row in new_rows if row not in rows]
            page.set_memory_limits({row.uuid: row.memory for row in changed})
            page.set_regimes({row.uuid: (row.share, row.mode, row.priority) for row in changed})
            if request.memory is not None:
                notes += _too_low(directory, new_rows, page.rows(), cards)
        except DamagedFile as error:
            fix = f"remove it with `hami rm {directory.name}`, and create another"
            raise StateError(f"slice {directory.name}", error.why, fix) from error
    if request.share is not None:
        notes += overbooked(settings, {card.uuid: card.index for card in cards})
    return (*notes, *coordinator.ensure(settings, directory))


def _too_low(
    directory: Path, rows: Sequence[CardLimit], page: Sequence[LimitRow], cards: Sequence[Card]
) -> tuple[str, ...]:
    used = Account.open(directory / ACCOUNT).snapshot().memory_used[: len(rows)]
    contexts = [row.context_memory or 0 for row in page]
    return too_low(rows, used, "is in use", cards) or too_low(
        rows, contexts, "the driver takes for a context", cards
    )


def resize_named(settings: Settings, name: str, request: LimitRequest) -> tuple[str, ...]:
    """The same for the slice with this name or id.

    Raises:
        UnknownSlice: there is no such slice, or the id is ambiguous.
        HamiError: as ``resize``.
    """
    held = hold_named(settings, name)
    try:
        return resize(settings, held.directory, request)
    finally:
        held.release()


@contextmanager
def _register(settings: Settings) -> Iterator[Path]:
    """Lock the directory of slices; yields it."""
    slices = runtime_directory(settings.runtime_directory) / "slices"
    with usable(slices):
        slices.mkdir(mode=0o700, exist_ok=True)
        with locked(slices):
            yield slices


def _find(slices: Path, name: str) -> Path:
    # Python callers may pass the name of an unnamed slice, which is None.
    if not isinstance(name, str):
        raise InvalidValue("name_or_id", repr(name), "write a slice's name or id as a string")
    records = [(directory, read_record(directory)) for directory in sorted(slices.iterdir())]
    named = [directory for directory, record in records if record and record.name == name]
    # A name takes precedence over the start of an id.
    found = named or [d for d, _record in records if name and d.name.startswith(name)]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(directory.name[:SHOWN_ID] for directory in found)
        raise UnknownSlice(
            f"slice {legible(name)}", f"several ids start with it: {ids}", "write more of the id"
        )
    raise _unknown(name)


def _if_of_machine(settings: Settings, slices: Path, name: str) -> Machine | None:
    """The machine's service, if it runs and none of this user's other slices has the name."""
    service = machine(settings)
    if service is not None:
        with suppress(UnknownSlice):
            _find(slices, name)
            return None
    return service


def _unknown(name: str) -> UnknownSlice:
    fix = "`hami ps` lists your slices"
    return UnknownSlice(f"slice {legible(name)}", "you have no slice with this name or id", fix)


def _entry(directory: Path, environments: Environments) -> Found:
    record = read_record(directory)
    held = hold.is_held(directory) or (record is not None and record.relaunched_is_running())
    in_use = hold.is_in_use(directory, record, environments)
    return Found(directory, record, held, in_use, hold.pids_in(directory, environments))


def describe(entry: Found, library: Path) -> SliceInfo:
    """The slice's description; one that is being removed looks damaged."""
    layer, damage = None, None
    try:
        layer = read_from_outside(entry.directory)
    except StateError as error:
        damage = error.why
    record = entry.record
    if record is None:
        damage = damage or f"its {RECORD} cannot be read"
    processes = _processes(layer, entry.inside, library)
    return SliceInfo(
        id=entry.directory.name,
        name=record.name if record else None,
        directory=entry.directory,
        state=_state(entry, damage),
        keep=record.keep if record else False,
        created=record.created if record else None,
        command=record.command if record else (),
        cards=layer.cards(record.indices if record else {}) if layer else (),
        processes=processes,
        damage=damage,
        gang=record.gang if record else None,
        user=_users(processes, entry.directory),
    )


def _exists(directory: Path) -> bool:
    with usable(directory), locked(directory.parent):
        return directory.exists()


def _state(entry: Found, damage: str | None) -> SliceState:
    if damage is not None:
        return "damaged"
    if entry.held:
        return "running"
    if entry.record and entry.record.keep:
        return "running" if entry.in_use else "kept"
    return "ending"


def _processes(
    layer: Layer | None, inside: frozenset[int], library: Path
) -> tuple[SliceProcess, ...]:
    here = pid_namespace()
    members = [process for process in layer.account.processes if process.alive] if layer else []
    # A PID of another namespace names another process here, so members are found by both.
    places = {place_of(pid): pid for pid in inside}
    pids = [
        process.pid
        if process.pid_namespace == here
        else places.get((process.pid_namespace, process.pid))
        for process in members
    ]
    found = []
    for pid in inside.difference(pids):
        around = bypass.find(pid, library)
        why = None if around is None else around.why
        found.append(SliceProcess(pid, command_of(pid), (), why, user_of(pid)))
    for process, known in zip(members, pids, strict=True):
        # A process with an entry has the library, which has made the entry.
        command = () if known is None else command_of(known)
        uses = (use_of(process, i, row) for i, row in enumerate(layer.rows if layer else ()))
        cards = tuple(use for use in uses if use is not None)
        user = None if known is None else user_of(known)
        found.append(SliceProcess(known or process.pid, command, cards, user=user))
    return tuple(sorted(found, key=lambda process: process.pid))


def _users(processes: Iterable[SliceProcess], directory: Path) -> str | None:
    """The users who run the processes; without any, the owner of the directory."""
    found = sorted({process.user for process in processes if process.user is not None})
    with suppress(OSError):
        return ",".join(found) or user_name(directory.stat().st_uid)
    return None
