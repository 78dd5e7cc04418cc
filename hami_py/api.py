"""The functions of the package: what was asked, checked, and handed to the room that does it.

They read the settings of this process each time, so that a changed environment counts.
"""

import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from hami_py import config
from hami_py.model import (
    Card,
    Limits,
    Mode,
    Priority,
    Shares,
    SliceInfo,
    Usage,
    check_name,
    parse_arguments,
    parse_devices,
)
from hami_py.slices import current, prepare, registry
from hami_py.slices.handle import Slice
from hami_py.slices.relaunch import relaunch

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from hami_py.slices.options import Command, RunOptions


def devices() -> list[Card]:
    """The cards of this machine: physical GPUs, and MIG slices where a GPU is cut up.

    Inside a slice, its cards with the memory that the slice may use.

    Raises:
        NoDriver: there is no working driver.
        NoDevice: there is no card.
        DriverError: a card does not answer.
        StateError: this process is in a slice that cannot be read.
    """
    return current.cards(config.read())


def limits() -> Limits:
    """The limits that hold for this process.

    Where only HAMi's variables set them, the cards of this machine are looked at.

    Raises:
        StateError: this process is in a slice that cannot be read.
        InvalidValue: one of HAMi's variables cannot be understood.
        NoDriver: there is no working driver to ask for the cards.
        NoDevice: there is no card.
        DriverError: a card does not answer.
        UnknownCard: which cards ``CUDA_VISIBLE_DEVICES`` means cannot be told here.
    """
    return current.limits(config.read())


def usage() -> Usage:
    """What the slice that this process is in uses, in bytes and seconds; no cards outside of any.

        for card in hami.usage().cards:
            print(card.uuid, card.memory_used, "of", card.memory_limit, card.engine_time)

    Raises:
        StateError: this process is in a slice that cannot be read.
        InvalidValue: one of HAMi's variables cannot be understood.
        NoDriver, NoDevice, DriverError, UnknownCard: as ``limits()``.
    """
    return current.usage(config.read())


def slice(
    *,
    gpumem: str | Mapping[str, str] | None = None,
    gpucores: Shares | None = None,
    mode: Mode | None = None,
    priority: Priority | None = None,
    devices: Sequence[str] = (),
    name: str | None = None,
    keep: bool = False,
) -> Slice:
    """A new slice, within those that this process is in; several programs can share its limits.

        with hami.slice(gpumem="4GiB", name="train") as s:
            workers = [s.popen(["python", "worker.py"]) for _ in range(4)]

    It is made when it is entered (``with`` or ``async with``) or first used, and closed at the end
    of the block, or by ``close()``.

    Args:
        gpumem: one size for every card, or sizes by card (UUID or index); a card that is not named
            has no limit. A size above the card's own is lowered to it, with a ``UserWarning``.
            Several slices may together have more than a card: a limit is a ceiling, not a
            reservation.
        gpucores: percent of every card's time, 1 to 100 (``30``, ``"30"``, ``"30%"``), or percent
            by card; a card that is not named, or has 100 or ``"none"``, has no limit. None: nothing
            is said. Engine time is what is measured: kernels, and graphs with all that is in them,
            but no copies on a stream.
        mode: ``hard`` (if nothing is said): the share and no more. ``soft``: the share is a weight;
            time that nobody else wants is lent. Without a share it says nothing yet, which a
            ``UserWarning`` tells.
        priority: ``low``, ``normal`` (if nothing is said) or ``high``: who of several slices goes
            first, whatever their shares; a soft slice, or one without a share, may then take all
            the time there is.
        devices: cards that its programs shall see, by UUID or index, in its order; none = all.
        name: what it is called, for ``hami ps`` and ``open_slice``: 1 to 63 letters, digits, and
            after the first also ``_ . -``; no two slices of a user have the same.
        keep: it stays when nobody uses it, until ``hami rm`` or ``remove_slice``.

    Raises:
        InvalidValue: a size, share, mode, priority or name that is not understood. When it is made:
            the name is taken, or there are too many cards, or slices inside one another.
        HamiError: when it is made: no driver, no such card, or no slice can be made here.
    """
    asked = parse_arguments(gpumem, gpucores, mode, priority)
    if name is not None:
        check_name(name)
    chosen = parse_devices(devices)
    request = prepare.Request(sys.orig_argv, asked, chosen, name, keep)
    return Slice(name, lambda: prepare.open_new(config.read(), request))


def open_slice(name_or_id: str) -> Slice:
    """A slice that is there: to start programs in it, to look at it, to resize it.

        with hami.open_slice("train") as s:
            s.resize(gpumem="6GiB")

    It is held until it is closed, so it does not go away meanwhile. What is started in it is also
    in the slices that this process is in.

    Args:
        name_or_id: its name, or the start of its id if no other begins so.

    Raises:
        UnknownSlice: this user has none of that name or id, or several.
        StateError: it, or a slice around it, cannot be used.
        InvalidValue: it is no string, or more slices inside one another than the preload library
            takes.
    """
    opened = prepare.open_named(config.read(), name_or_id)
    return Slice(name_or_id, lambda: opened, opened)


def list_slices() -> list[SliceInfo]:
    """The slices of this user, oldest first, as ``hami ps`` shows them.

    Raises:
        StateError: the runtime directory cannot be used.
    """
    return registry.list_slices(config.read())


def remove_slice(name_or_id: str) -> None:
    """Remove a slice that nobody uses, as ``hami rm`` does.

    Args:
        name_or_id: its name, or the start of its id if no other begins so.

    Raises:
        UnknownSlice: this user has none of that name or id, or several.
        SliceInUse: processes are in it, or hold it; their pids are in ``pids``.
        InvalidValue: it is no string.
        StateError: its files cannot be removed.
    """
    registry.remove(config.read(), name_or_id)


def limit_this_process(
    *,
    gpumem: str | Mapping[str, str] | None = None,
    gpucores: Shares | None = None,
    mode: Mode | None = None,
    priority: Priority | None = None,
    devices: Sequence[str] = (),
) -> Limits:
    """Put a limit on this very program: it begins again, once, inside a new slice.

        import hami_py as hami

        hami.limit_this_process(gpumem="4GiB")
        import torch

    The interpreter executes itself with the same command line (``sys.orig_argv``), pid, standard
    streams and working directory; what the program has done before the call it does twice, and
    files that it has open are closed as ``exec`` does. In the program that has begun again the call
    does nothing and returns. So it belongs at the very beginning. The slice goes with the last
    process in it.

    Args:
        gpumem: as for ``slice``.
        gpucores: as for ``slice``.
        mode: as for ``slice``.
        priority: as for ``slice``.
        devices: as for ``slice``.

    Returns:
        The limits that hold for this process.

    Raises:
        CannotRelaunch: beginning again would not be the same: in an interactive interpreter or a
            Jupyter kernel, in a child process, where the driver is loaded or other threads run.
        InvalidValue: a size, share, mode or priority that is not understood.
        HamiError: no driver, no such card, or no slice can be made here.
    """
    asked = parse_arguments(gpumem, gpucores, mode, priority)
    return relaunch(
        config.read(),
        asked,
        parse_devices(devices),
        lambda note: warnings.warn(note, stacklevel=4),
    )


@overload
def run(
    command: "Command",
    *,
    text: Literal[True],
    encoding: str | None = None,
    errors: str | None = None,
    gpumem: str | Mapping[str, str] | None = None,
    gpucores: Shares | None = None,
    mode: Mode | None = None,
    priority: Priority | None = None,
    devices: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    **options: "Unpack[RunOptions]",
) -> subprocess.CompletedProcess[str]: ...
@overload
def run(
    command: "Command",
    *,
    text: bool | None = None,
    encoding: str,
    errors: str | None = None,
    gpumem: str | Mapping[str, str] | None = None,
    gpucores: Shares | None = None,
    mode: Mode | None = None,
    priority: Priority | None = None,
    devices: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    **options: "Unpack[RunOptions]",
) -> subprocess.CompletedProcess[str]: ...
@overload
def run(
    command: "Command",
    *,
    text: Literal[False] | None = None,
    gpumem: str | Mapping[str, str] | None = None,
    gpucores: Shares | None = None,
    mode: Mode | None = None,
    priority: Priority | None = None,
    devices: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    **options: "Unpack[RunOptions]",
) -> subprocess.CompletedProcess[bytes]: ...
def run(
    command: "Command",
    *,
    gpumem: str | Mapping[str, str] | None = None,
    gpucores: Shares | None = None,
    mode: Mode | None = None,
    priority: Priority | None = None,
    devices: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """Run a program in a new slice and wait for it, like ``subprocess.run``.

        hami.run(["python", "train.py"], gpumem="4GiB", check=True)
        hami.run(["python", "train.py"], gpumem={"0": "4GiB", "1": "8GiB"}, devices=["1", "0"])

    Args:
        command: program and arguments.
        gpumem: as for ``slice``.
        gpucores: as for ``slice``.
        mode: as for ``slice``.
        priority: as for ``slice``.
        devices: as for ``slice``.
        env: the environment that it would have without us; None = this process's.
        options: everything else that ``subprocess.run`` takes.

    Raises:
        InvalidValue: a size, share, mode or priority that is not understood; too many cards, or
            slices inside one another.
        HamiError: no driver, no such card, or no slice can be made here.
        Exception: whatever ``subprocess.run`` raises.
    """
    asked = parse_arguments(gpumem, gpucores, mode, priority)
    settings = config.read()
    chosen = parse_devices(devices)
    with prepare.prepared(settings, command, asked, chosen, env) as prepared:
        for note in prepared.notes:
            warnings.warn(note, stacklevel=2)
        return subprocess.run(command, env=prepared.environment, **options)  # noqa: PLW1510
