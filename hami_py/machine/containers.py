"""Kept slices as devices of containers, for every container runtime that reads CDI.

    /etc/cdi/hami-slices.json      hami.io/slice=USER.NAME: a device for each kept slice

The devices of all users are in one file, because Podman reads no directory of a user. A device is
named after user and slice: were the slice's name enough, a user could take the name of another's
device. The file has no secret but names, and a device lets in nobody: rootless Podman has the
rights of its user, whom the directory of another's slot refuses. Users of Docker's daemon have
those of root.

A container sees the slot's files one by one, over a directory with empty files: only the slice's
user may enter the slot itself, and users of a container are others.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from hami_py.config import ACCOUNT, INSIDE
from hami_py.errors import StateError
from hami_py.node import cdi, library
from hami_py.node.ledger import Entry, Ledger
from hami_py.node.slot import Bind
from hami_py.slices.registry import SHOWN_ID

KIND = "hami.io/slice"

NAME = "hami-slices.json"
"""The file of the specification."""

_OLDEST = "0.5.0"
"""The version of CDI that our edits need: the name of a device may begin with a digit. Podman 4.3
finds no device of a specification that says 0.6.0."""

_USER = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
"""Without a dot, so that no two users have the same device. Other users are named by number."""

_SLICE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")


@dataclass(frozen=True)
class Device:
    """A kept slice as a device.

    Attributes:
        name: as runtimes have it: ``hami.io/slice=anna.train``.
        slot: the slice's id.
        slice: the slice's name; empty = it has none.
        cards: the UUIDs of its cards.
        library: its installed library.
        problem: why containers cannot use it; None = they can.
    """

    name: str
    slot: str
    slice: str
    cards: tuple[str, ...]
    library: str
    problem: str | None = None


def container_binds(slot: Path, installed: Path) -> tuple[Bind, ...]:
    """The mounts of a container with a slice.

    The slot's files are on a file system without programs. A user's runtime, which may not change
    that, has to mount them so too.
    """
    directory, *files = library.container_binds(slot, installed)
    return (
        replace(directory, source=installed.with_name(library.SKELETON)),
        *(replace(each, no_exec=each.source.parent == slot) for each in files),
    )


class SliceDevices:
    """The specification of the devices.

    Args:
        directories: those of CDI specifications, with NVIDIA's. Ours is in the first: all versions
            of Podman read that one.
        slots: the directory of the slots.
        ledger: what each slice has.
    """

    def __init__(self, directories: tuple[Path, ...], slots: Path, ledger: Ledger) -> None:
        self._path, self._slots, self._ledger = directories[0] / NAME, slots, ledger
        self._cards = cdi.NodeCards(directories)
        self._lock = threading.Lock()
        self._entries: Mapping[str, Entry] | None = None
        self._devices: list[Device] = []
        self._known: object = None

    def update(self) -> None:
        """Write the specification again if slices or NVIDIA's specifications have changed.

        Raises:
            StateError: it cannot be written.
        """
        with self._lock:
            # The ledger has other entries after each change of one, and most change no device.
            entries, before, known = self._ledger.entries, self._devices, self._cards.devices()
            if entries is not self._entries:
                self._entries, self._devices = entries, _devices(entries.values())
            devices = self._devices
            if devices == before and known == self._known:
                return
            # Until it is written.
            self._known = None
            try:
                edits = self._edits(devices)
                if edits:
                    cdi.write(self._path, KIND, edits, _OLDEST)
                else:
                    self._path.unlink(missing_ok=True)
            except OSError as error:
                why = f"{error.filename}: {error.strerror or error}"
                raise StateError(str(self._path), why, "check this directory") from error
            self._known = known

    def devices(self, entries: Iterable[Entry]) -> list[Device]:
        """The devices of slices, also those that cannot be used, with the reason."""
        found = _devices(entries)
        missing = set(self._cards.missing(card for each in found for card in each.cards))
        why = f"{self._cards.why_missing()}; {cdi.FIX}"
        return [replace(each, problem=why) if missing & {*each.cards} else each for each in found]

    def _edits(self, devices: Iterable[Device]) -> dict[str, cdi.CardEdits]:
        """The edits by the name of a device in the specification.

        Raises:
            OSError: a directory of a library cannot be written.
        """
        # Slices of the same cards have the same edits, which are long.
        edits_for, skeleton = cache(self._cards.edits), cache(library.skeleton)
        found = {}
        for each in devices:
            installed = Path(each.library)
            skeleton(installed)
            # Without NVIDIA's edits a container has no card: then it shall not start.
            with suppress(StateError):
                binds = container_binds(self._slots / each.slot, installed)
                found[each.name.partition("=")[2]] = cdi.with_binds(edits_for(each.cards), binds)
        return found


def _devices(entries: Iterable[Entry]) -> list[Device]:
    found: dict[str, Device] = {}
    for entry in entries:
        run = entry.run
        # What is inside another slice has a part of that one's limits, which a container would
        # leave.
        if run is None or not run.keep or run.is_inside or run.kind != "slice":
            continue
        user = entry.namespace if _USER.fullmatch(entry.namespace) else entry.owner[len("uid:") :]
        name = entry.name if _SLICE.fullmatch(entry.name) else entry.slot[:SHOWN_ID]
        name = f"{KIND}={user}.{name}"
        cards = tuple(each.card for each in entry.cards)
        # Were a name there twice, no runtime would read the file.
        found.setdefault(name, Device(name, entry.slot, entry.name, cards, entry.library))
    return list(found.values())


def slots_mounted(process: Path, device: int) -> set[str]:
    """The slots with an account that a process sees mounted: it is in a container of theirs.

    Args:
        process: its directory in ``/proc``.
        device: the file system of the slots.

    Raises:
        OSError: it has ended.
    """
    # 51 50 0:30 /slices/ID/account /usr/local/hami/account rw ... (proc_pid_mountinfo(5))
    number = f"{os.major(device)}:{os.minor(device)}"
    found = set()
    for line in (process / "mountinfo").read_text(errors="replace").splitlines():
        _, _, mounted, root, target = line.split(" ", 5)[:5]
        if mounted == number and target == str(INSIDE / ACCOUNT) and root.endswith(f"/{ACCOUNT}"):
            found.add(Path(root).parent.name)
    return found


def processes_in_containers(device: int) -> Mapping[str, set[int]]:
    """By slot, a process of each container that has it."""
    found: dict[str, set[int]] = {}
    seen = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # A process that has changed its root sees the mounts below that only.
            view = (process / "ns" / "mnt").readlink(), (process / "root").readlink()
            if view not in seen:
                seen.add(view)
                for slot in slots_mounted(process, device):
                    found.setdefault(slot, set()).add(int(process.name))
    return found
