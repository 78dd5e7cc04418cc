"""The functions of the package: they check their arguments and call ``hami_py.slices``.

They read the settings of this process at each call, so a changed environment takes effect.
"""

import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from hami_py import config
from hami_py.model import (
    Card,
    Limits,
    Mode,
    Priority,
    Shares,
    Sizes,
    SliceInfo,
    Usage,
    parse_arguments,
    parse_devices,
)
from hami_py.slices import current, registry
from hami_py.slices.handle import Slice
from hami_py.slices.prepare import SliceRequest, open_named, open_new
from hami_py.slices.programs import Command
from hami_py.slices.relaunch import relaunch


def devices() -> list[Card]:
    """The cards of this machine: physical GPUs, and MIG devices of GPUs in MIG mode.

    Inside a slice: its cards, with the memory that the slice may use.

    Raises:
        NoDriver: there is no working driver.
        NoDevice: there is no card.
        DriverError: a card does not respond.
        StateError: this process is in a slice that cannot be read.
    """
    return current.cards(config.read())


def limits() -> Limits:
    """The effective limits of this process.

    If only HAMi's variables set limits, this lists the cards of the machine through NVML.

    Raises:
        StateError: this process is in a slice that cannot be read.
        InvalidValue: one of HAMi's variables is invalid.
        NoDriver: there is no working driver to list the cards.
        NoDevice: there is no card.
        DriverError: a card does not respond.
        UnknownCard: the cards that ``CUDA_VISIBLE_DEVICES`` means are unknown here.
    """
    return current.limits(config.read())


def usage() -> Usage:
    """The usage of the slice that this process is in, in bytes and seconds.

    Outside a slice it has no cards.

        for card in hami.usage().cards:
            print(card.uuid, card.memory_used, "of", card.memory_limit, card.engine_time)

    Raises:
        StateError: this process is in a slice that cannot be read.
        InvalidValue: one of HAMi's variables is invalid.
        NoDriver, NoDevice, DriverError, UnknownCard: as ``limits()``.
    """
    return current.usage(config.read())


def slice(
    *,
    gpumem: Sizes | None = None,
    gpucores: Shares | None = None,
    mode: Mode | None = None,
    priority: Priority | None = None,
    devices: Sequence[str | int] = (),
    name: str | None = None,
    keep: bool = False,
    gang: str | None = None,
) -> Slice:
    """Create a slice whose limits several programs can share.

        with hami.slice(gpumem="4GiB", name="train") as s:
            workers = [s.popen(["python", "worker.py"]) for _ in range(4)]

    The slice is created when it is entered (``with`` or ``async with``) or first used, within the
    slices that this process is in. It is closed at the end of the block, or by ``close()``.

    Args:
        gpumem: one size for every card, or sizes by card (UUID or index); a card that is not named
            has no limit. A size above the card's own is lowered to it, with a ``UserWarning``. The
            limits of several slices may exceed the card: a limit is not a reservation.
        gpucores: percent of every card's time, 1 to 100 (``30``, ``"30"``, ``"30%"``), or percent
            by card; a card that is not named, or has 100 or ``"none"``, has no limit. None = no
            share. The share counts engine time: kernels, and graphs with all their nodes, but not
            copies on a stream.
        mode: ``hard`` (default): the share and no more. ``soft``: the share is a weight, and the
            slice may use idle time. The mode of a slice without a share counts once ``resize``
            sets one; a ``UserWarning`` reports that.
        priority: ``low``, ``normal`` (default) or ``high``: the order in which slices get a card,
            whatever their shares are. A soft slice, or one without a share, may take all but 2 % of
            the card's time.
        devices: the cards that its programs see, by UUID or index, in this order; empty = all.
        name: its name, for ``hami ps`` and ``open_slice``: 1 to 63 letters and digits; after the
            first, ``_ . -`` are allowed too. The names of a user's slices are unique.
        keep: the slice remains when it is unused, until ``hami rm`` or ``remove_slice``.
        gang: the name of its gang, with the characters of a name. All slices of this user on this
            machine with the same gang get the cards at the same time, so that their kernels may
            wait for each other. Slices on other machines are not waited for.

    Raises:
        InvalidValue: a size, share, mode, priority, name or gang is invalid. At creation: the name
            is in use, or there are too many cards or nested slices.
        HamiError: at creation: no driver, no such card, or a slice cannot be created here.
    """
    limit_request = parse_arguments(gpumem, gpucores, mode, priority)
    chosen = parse_devices(devices)
    request = SliceRequest(sys.orig_argv, limit_request, chosen, name, keep, gang=gang)
    return Slice(name, lambda: open_new(config.read(), request))


def open_slice(name_or_id: str) -> Slice:
    """Open an existing slice, to start programs in it, read its usage or resize it.

        with hami.open_slice("train") as s:
            s.resize(gpumem="6GiB")

    The slice is held until it is closed, so it is not removed meanwhile. Programs started in it get
    its limits, and those of the slices that this process is in.

    Args:
        name_or_id: its name, or the start of its id if that is unique.

    Raises:
        UnknownSlice: this user has no slice with that name or id, or the id is ambiguous.
        StateError: the slice, or one around it, cannot be used.
        InvalidValue: ``name_or_id`` is not a string, or there are too many nested slices.
    """
    opened = open_named(config.read(), name_or_id)
    return Slice(name_or_id, lambda: opened, opened)


def list_slices() -> list[SliceInfo]:
    """The slices of this user, oldest first, as in ``hami ps``.

    Raises:
        StateError: the runtime directory cannot be used.
    """
    return registry.list_slices(config.read())


def remove_slice(name_or_id: str) -> None:
    """Remove an unused slice, like ``hami rm``.

    Args:
        name_or_id: its name, or the start of its id if that is unique.

    Raises:
        UnknownSlice: this user has no slice with that name or id, or the id is ambiguous.
        SliceInUse: processes are in it, or hold it; their pids are in ``pids``.
        InvalidValue: ``name_or_id`` is not a string.
        StateError: its files cannot be removed.
    """
    registry.remove(config.read(), name_or_id)


def limit_this_process(
    *,
    gpumem: Sizes | None = None,
    gpucores: Shares | None = None,
    mode: Mode | None = None,
    priority: Priority | None = None,
    devices: Sequence[str | int] = (),
    gang: str | None = None,
) -> Limits:
    """Limit this process by restarting it, once, in a new slice.

        import hami_py as hami

        hami.limit_this_process(gpumem="4GiB")
        import torch

    The interpreter executes itself with the same command line (``sys.orig_argv``), pid, standard
    streams and working directory. The program repeats everything before the call, and its open
    files are closed as by ``exec``, so call this first. In the restarted program the call returns
    the limits. The slice is removed after its last process. The arguments are as for ``slice``.

    Returns:
        The effective limits of this process.

    Raises:
        CannotRelaunch: a restart would not repeat what the process did: in an interactive
            interpreter or a Jupyter kernel, in a child process, or if the driver is loaded or other
            threads run.
        InvalidValue: a size, share, mode, priority or gang is invalid.
        HamiError: no driver, no such card, or a slice cannot be created here.
    """
    limit_request = parse_arguments(gpumem, gpucores, mode, priority)
    chosen = parse_devices(devices)
    request = SliceRequest(sys.orig_argv, limit_request, chosen, relaunched=True, gang=gang)
    return relaunch(config.read(), request, lambda note: warnings.warn(note, stacklevel=4))


def run(
    command: Command,
    *,
    gpumem: Sizes | None = None,
    gpucores: Shares | None = None,
    mode: Mode | None = None,
    priority: Priority | None = None,
    devices: Sequence[str | int] = (),
    gang: str | None = None,
    env: Mapping[str, str] | None = None,
    **options: Any,  # noqa: ANN401
) -> subprocess.CompletedProcess[Any]:
    """Run a program in a new slice and wait for it, like ``subprocess.run``.

        hami.run(["python", "train.py"], gpumem="4GiB", check=True)
        hami.run(["python", "train.py"], gpumem={"0": "4GiB", "1": "8GiB"}, devices=["1", "0"])

    The limits, ``devices`` and ``gang`` are as for ``slice``. ``env`` is the program's environment
    without a slice, None = this process's, and ``options`` are the other options of
    ``subprocess.run``.

    Raises:
        InvalidValue: a size, share, mode, priority or gang is invalid, or there are too many cards
            or nested slices.
        HamiError: no driver, no such card, or a slice cannot be created here.
        Exception: as ``subprocess.run``.
    """
    limit_request = parse_arguments(gpumem, gpucores, mode, priority)
    request = SliceRequest(command, limit_request, parse_devices(devices), gang=gang)
    settings = config.read()
    with closing(open_new(settings, request)) as opened:
        environment = opened.environment(settings.environment if env is None else env)
        for note in opened.notes:
            warnings.warn(note, stacklevel=2)
        return subprocess.run(command, env=environment, **options)  # noqa: PLW1510
