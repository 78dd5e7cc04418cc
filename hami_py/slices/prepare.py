"""From a request to a slice, and to the environment of a program in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hami_py._native import HamiLimit, HamiVariables, parse_memory
from hami_py.config import CONTEXT_MEMORY, GRANULE, LIBRARY_NAME, Settings
from hami_py.errors import InvalidValue, StateError
from hami_py.model import (
    Card,
    CardLimit,
    LimitRequest,
    Plan,
    Summary,
    check_name,
    ineffective,
    legible,
    plan,
    too_low,
)
from hami_py.slices import coordinator
from hami_py.slices.beside import directories, keep, link_within, own_slices
from hami_py.slices.current import cards, shown
from hami_py.slices.hold import Hold, create_held
from hami_py.slices.machine import Machine, MachineHold, machine
from hami_py.slices.overbooked import overbooked
from hami_py.slices.programs import Command, compose, require_glibc, require_library
from hami_py.slices.record import new_record, read_record, words_of
from hami_py.slices.registry import hold_named
from hami_py.slices.runtime import usable
from hami_py.slices.summary import shortened, summary_of

MAX_LAYERS = 8
"""Nested slices that the preload library supports: it charges every layer for each allocation."""

_COMMAND = 1024
"""Characters of a command line that the service is told, which fit its largest request."""


@dataclass(frozen=True)
class SliceRequest:
    """A slice to be created.

    Attributes:
        command: the program that will run in it, or the one that creates it; shown by ``hami ps``.
        devices: cards by UUID or index; empty = all.
        keep: it remains until it is removed.
        relaunched: this process will restart itself in it.

    Raises:
        InvalidValue: one of the names is not valid.
    """

    command: Command
    limits: LimitRequest = field(default_factory=LimitRequest)
    devices: Sequence[str] = ()
    name: str | None = None
    keep: bool = False
    relaunched: bool = False
    gang: str | None = None

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name(self.name)
        if self.gang is not None:
            check_name(self.gang, "gang")


@dataclass(frozen=True)
class Opened:
    """A slice that this process holds, until it closes it, and can start programs in.

    Attributes:
        library: the path of the preload library in it.
        slices: the slices of a program in it, outermost first, including this one.
    """

    hold: Hold | MachineHold
    library: Path
    slices: tuple[Path, ...]
    notes: tuple[str, ...] = ()

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The environment for a program that would have ``base`` without a slice."""
        libraries = (self.library, self.library.resolve())
        chosen = self.hold.record.devices is not None
        return compose(base, libraries, self.slices, chosen=chosen)

    def summary(self) -> Summary:
        """The use by its programs until now."""
        return summary_of(self.hold.directory, self.hold.record)

    def close(self) -> None:
        """Release the slice."""
        self.hold.release()


def open_new(settings: Settings, request: SliceRequest) -> Opened:
    """Create a slice within those that this process is in.

    Raises:
        HamiError: no driver, no such card, or a slice cannot be created here. On a node of
            Kubernetes with a node agent, no slice with a share can.
        InvalidValue: too many cards, too many nested slices, or another slice has the name.
    """
    around = own_slices(settings)
    _check_depth(len(directories(settings)) + 1)
    service = machine(settings)
    if service is not None:
        return _open_on(service, request, around)
    library = keep(require_library(settings.library), settings)
    planned = plan_new(settings, request.limits, request.devices)
    if any(row.share is not None for row in planned.limits):
        coordinator.require_unmanaged(settings)
    # In a slice whose cards were chosen, they are counted anew.
    outermost = read_record(around[0]) if around else None
    record = replace(
        new_record(request.command),
        name=request.name,
        keep=request.keep,
        relaunched=request.relaunched,
        around=tuple(map(str, around)),
        devices=planned.devices,
        gang=request.gang,
        indices=outermost.indices if outermost else planned.indices,
    )
    held = create_held(
        settings.runtime_directory, planned.limits, record, library, planned.driver_memory
    )
    notes = (*planned.notes, *coordinator.ensure(settings, held.directory))
    if any(row.share is not None for row in planned.limits):
        notes += overbooked(settings, record.indices)
    return Opened(held, held.directory / LIBRARY_NAME, (*around, held.directory), notes)


def _open_on(service: Machine, request: SliceRequest, around: tuple[Path, ...]) -> Opened:
    """Let the machine's service create a slice."""
    require_glibc()
    answer = service.ask(
        "create",
        limits=request.limits,
        command=shortened(words_of(request.command), _COMMAND),
        devices=list(request.devices),
        name=request.name,
        keep=request.keep,
        gang=request.gang,
        around=list(map(str, around)),
    )
    held = service.held(Path(answer["directory"]))
    library = held.directory / LIBRARY_NAME
    return Opened(held, library, (*around, held.directory), tuple(answer["notes"]))


def plan_new(settings: Settings, request: LimitRequest, devices: Sequence[str]) -> Plan:
    """Plan a new slice, with the current cards and HAMi's variables.

    Raises:
        NoDriver, NoDevice, DriverError: NVML cannot list the cards.
        UnknownCard: a card does not exist, is not visible, or is limited but not chosen.
        InvalidValue: too many cards, or ``HAMI_CONTEXT_MEMORY`` or ``HAMI_GRANULE`` is invalid.
    """
    found = cards(settings)
    planned = plan(found, request, devices, shown(settings) if devices else None)
    ours = [card for card in found if card.uuid in planned.driver_memory]
    figures = {card.uuid: card.driver_memory for card in _with_driver_memory(ours, settings)}
    planned = replace(planned, driver_memory=figures)
    limits = _with_variables(planned.limits, request, _variables(settings))
    contexts = [figures[row.uuid].context or 0 for row in limits]
    unusable = too_low(limits, contexts, "the driver takes for a context", ours)
    notes = (*planned.notes, *unusable, *ineffective(limits, request))
    return replace(planned, limits=limits, notes=notes)


def _with_driver_memory(found: Sequence[Card], settings: Settings) -> list[Card]:
    """The cards with the driver's memory: by the settings, else measured, else by the table."""
    figures: dict[str, int | None] = {}
    if settings.context_memory is not None:
        figures["context"] = _size(settings.context_memory, CONTEXT_MEMORY)
    if settings.granule is not None:
        figures["granule"] = _size(settings.granule, GRANULE)
    return [replace(card, driver_memory=replace(card.driver_memory, **figures)) for card in found]


def _size(setting: str, name: str) -> int | None:
    """The bytes in a setting; None for 0."""
    return None if setting == "0" else parse_memory(setting, "api", name)


def _variables(settings: Settings) -> HamiVariables:
    """HAMi's variables. If one is invalid, the preload library reports it to the program."""
    try:
        return HamiVariables(settings.hami_limits)
    except InvalidValue:
        return HamiVariables({})


def _with_variables(
    rows: Sequence[CardLimit], request: LimitRequest, variables: HamiVariables
) -> tuple[CardLimit, ...]:
    """The rows with the shares of HAMi's variables, where the request has none.

    The program reads the variables itself, but the coordinator reads only limits pages.
    """

    def merged(row: CardLimit, limit: HamiLimit) -> CardLimit:
        priority = request.priority or limit.priority or row.priority
        if row.share is not None or limit.share is None:
            return replace(row, priority=priority)
        mode = request.mode or limit.mode
        return replace(row, share=limit.share, mode=mode, priority=priority)

    return tuple(merged(row, variables.limit(number)) for number, row in enumerate(rows))


def open_named(settings: Settings, name: str) -> Opened:
    """Open an existing slice by name or id.

    Its programs get the limits of this slice, of the slices around it, and of the slices that this
    process is in. So joining a slice can only lower limits.

    Raises:
        UnknownSlice: there is no such slice, or the id is ambiguous.
        StateError: it is damaged, or a slice around it was removed.
        InvalidValue: too many nested slices.
    """
    held = hold_named(settings, name)
    try:
        of_machine = isinstance(held, MachineHold)
        library = held.directory / LIBRARY_NAME
        if not of_machine:
            library = keep(require_library(settings.library), settings)
        around = [Path(directory) for directory in held.record.around]
        for directory in around:
            if not directory.is_dir():
                fix = f"remove it with `hami rm {held.directory.name}`, and create another"
                why = f"{directory} around it was removed"
                raise StateError(f"slice {legible(name)}", why, fix)
        own = own_slices(settings)
        slices = (*own, *(path for path in (*around, held.directory) if path not in own))
        _check_depth(len(slices) + len(directories(settings)) - len(own))
        if of_machine and slices[:-1] != tuple(around):
            fix = "join it from a shell that is in no slice"
            raise StateError(f"slice {legible(name)}", "this process is in another slice", fix)
        with usable(held.directory):
            path = library if of_machine else link_within(held.directory, slices, library)
    except BaseException:
        held.release()
        raise
    return Opened(held, path, slices, coordinator.ensure(settings, held.directory))


def _check_depth(layers: int) -> None:
    if layers > MAX_LAYERS:
        fix = f"nest `hami run` at most {MAX_LAYERS} times"
        raise InvalidValue("slice", f"{layers} nested slices", fix)
