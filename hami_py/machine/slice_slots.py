"""The users' slices: their entries in the ledger, and their slots.

A slot is as those of pods, but only root and its user may enter it.

    <slot>/limits, grants, account    as in every slot
           libvgpu.so                 a link to the installed library
           slice.json                 what `hami run` keeps in a slice: who made it, and when
           chosen-cards, layers       if cards were chosen; if it is inside other slices

The ledger has all that a slot is made from, because slots are on tmpfs.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from hami_py._native import AccountSnapshot, LimitRow
from hami_py.config import CHOSEN, LIBRARY_NAME
from hami_py.errors import HamiError, StateError
from hami_py.machine.users import User
from hami_py.model import Card, CardLimit, gang_of_user
from hami_py.model.pods.wire import CardAllocation
from hami_py.node.cards import Cards
from hami_py.node.ledger import Entry, Ledger, Run
from hami_py.node.slots import Slots
from hami_py.slices.beside import list_layers
from hami_py.slices.record import RECORD, read_record
from hami_py.slices.runtime import usable
from hami_py.slices.summary import ended_of, keep

_MIB = 1 << 20

_SUMMARIES = 128 << 10
"""Bytes of a user's slices that have ended: a hundred or more, on the tmpfs of all users."""

_ACL = "system.posix_acl_access"
_ACL_ENTRY = struct.Struct("<HHI")
_NO_ID = 0xFFFF_FFFF


def owner_of(uid: int) -> str:
    """A user as the ledger names owners."""
    return f"uid:{uid}"


def uid_of(entry: Entry) -> int:
    """The user whose slice it is."""
    return int(entry.owner.removeprefix("uid:"))


def run_of(entry: Entry) -> Run:
    """The part of an entry that only slices outside of Kubernetes have.

    Raises:
        StateError: it is of a node agent.
    """
    if entry.run is None:
        fix = "remove it with `hami node --cleanup`"
        raise StateError(f"slot {entry.slot}", "it is of a node agent", fix)
    return entry.run


def around_of(entry: Entry) -> list[str]:
    """The slices that it is inside of, outermost first."""
    return _texts(run_of(entry).record.get("around"))


class SliceSlots:
    """All slices: their entries in the ledger, and their slots.

    Args:
        directory: where the slots are.
        ledger: what each slice has.
        slots: the slots, by name.
        cards: the machine's cards.
        library: the installed library for new slices.
    """

    def __init__(
        self, directory: Path, ledger: Ledger, slots: Slots, cards: Cards, library: Path
    ) -> None:
        self._directory, self._ledger, self._slots = directory, ledger, slots
        self._cards, self._library = cards, library

    @property
    def cards(self) -> list[Card]:
        """The machine's cards."""
        return [
            Card(card.index or 0, card.uuid, card.model, card.memory_mib * _MIB)
            for card in self._cards.all
        ]

    @property
    def sizes(self) -> dict[str, int]:
        """The bytes of each card, by UUID."""
        return {card.uuid: card.memory_mib * _MIB for card in self._cards.all}

    @property
    def all(self) -> list[Entry]:
        """All slices."""
        return list(self._ledger.entries.values())

    def of(self, uid: int) -> list[Entry]:
        """The slices of a user, the oldest first."""
        mine = [each for each in self.all if each.owner == owner_of(uid)]
        return sorted(mine, key=_created)

    def path(self, entry: Entry) -> Path:
        """The directory of a slice."""
        return self._directory / entry.slot

    def new(self, slot: str, user: User, name: str, run: Run, gang: str | None = None) -> Entry:
        """A slice that is to be added."""
        cards = self._allocations(run.limits)
        return Entry(
            *(slot, owner_of(user.uid), user.name, name, "", (), cards, cards),
            library=str(self._library),
            mode="full",
            priority="normal",
            gang=gang,
            run=run,
        )

    def with_run(self, entry: Entry, run: Run) -> Entry:
        """A slice with other limits, or another record."""
        return replace(entry, cards=self._allocations(run.limits), run=run)

    def put(self, entry: Entry) -> None:
        """Write a slice into the ledger, and then into its slot, or leave it as it was before.

        Raises:
            StateError: one of them cannot be written.
        """
        before = self._ledger.entries.get(entry.slot)
        # First the ledger: a slot without an entry is removed.
        self._ledger.put(entry)
        try:
            self.ensure(entry)
        except BaseException:
            if before is None:
                self._ledger.remove_slots([entry.slot])
            else:
                self._ledger.put(before)
            raise

    def ensure(self, entry: Entry) -> None:
        """Make the slot of an entry exist, with its limits.

        Raises:
            StateError: it cannot be created.
        """
        run, uid = run_of(entry), uid_of(entry)
        gang = None if entry.gang is None else gang_of_user(uid, entry.gang)

        def finish(slot: Path) -> None:
            (slot / LIBRARY_NAME).unlink()
            (slot / LIBRARY_NAME).symlink_to(entry.library)
            if run.is_inside:
                list_layers(slot, [*map(Path, around_of(entry)), self.path(entry)])
            _describe(slot, run)
            _let_in(slot, uid, 5)

        self._slots.ensure(entry.slot, self._rows(run.limits), gang, finish=finish)
        _describe(self.path(entry), run)

    def set_limits(self, entry: Entry) -> None:
        """Let the limits of an entry be in force.

        Raises:
            HamiError: its limits page is damaged.
            OSError: it cannot be opened.
        """
        self._slots.set_limits(entry.slot, self._rows(run_of(entry).limits))

    def use(self, entry: Entry) -> AccountSnapshot:
        """The use of a slice, by its account. Its processes write the account.

        Raises:
            HamiError: it is damaged.
            OSError: it cannot be opened.
        """
        return self._slots.use(entry.slot)

    def held(self, entry: Entry) -> dict[str, int]:
        """The bytes of each card that the processes of a slice hold, by UUID."""
        with suppress(HamiError, OSError):
            used = self.use(entry).memory_used
            uuids = [limit.uuid for limit in run_of(entry).limits]
            return dict(zip(uuids, used, strict=False))
        return {}

    def remove(self, entry: Entry) -> None:
        """Remove a slice that has ended, and keep its summary for its user."""
        self._ledger.remove_slots([entry.slot])
        uid = uid_of(entry)
        file = ended_of(self._directory.parent, uid)
        # Without it the slice ends all the same.
        with suppress(OSError):
            if not file.exists():
                file.touch()
                _let_in(file, uid, 4)
            keep(self.path(entry), read_record(self.path(entry)), file, _SUMMARIES)
        self._slots.remove(entry.slot)

    def _allocations(self, limits: Iterable[CardLimit]) -> tuple[CardAllocation, ...]:
        """The limits in whole MiB and percent, as observers compare them with what is used."""
        sizes = self.sizes
        return tuple(
            CardAllocation(
                limit.uuid,
                -(-(sizes.get(limit.uuid, 0) if limit.memory is None else limit.memory) // _MIB),
                limit.share or 0,
            )
            for limit in limits
        )

    def _rows(self, limits: Iterable[CardLimit]) -> list[LimitRow]:
        rows = []
        for limit in limits:
            memory = self._cards.driver_memory(limit.uuid)
            rows.append(
                LimitRow(
                    *(limit.uuid, limit.memory, limit.share, limit.mode, limit.priority),
                    context_memory=memory.context,
                    granule=memory.granule,
                )
            )
        return rows


def _created(entry: Entry) -> tuple[str, float]:
    """When it was created: to the second, and then more exactly."""
    record = run_of(entry).record
    return str(record.get("created")), float(str(record.get("boot_time", 0)))


def _describe(slot: Path, run: Run) -> None:
    """Write a slot's files about its slice that are not as they should be.

    Raises:
        StateError: one cannot be written.
    """
    chosen = run.record.get("devices")
    lines = None if chosen is None else "".join(f"{uuid}\n" for uuid in _texts(chosen))
    for name, text in ((RECORD, json.dumps(run.record)), (CHOSEN, lines)):
        file, aside = slot / name, slot / f"{name}.new"
        with usable(slot):
            if text is None:
                file.unlink(missing_ok=True)
            elif not file.exists() or file.read_text() != text:
                aside.write_text(text)
                aside.replace(file)


def _texts(value: object) -> list[str]:
    return list(map(str, value)) if isinstance(value, (list, tuple)) else []


def _let_in(path: Path, uid: int, rights: int) -> None:
    """Let one user beside root enter a directory: others could write the account in it.

    The owner stays root, so that this user can add and rename nothing. With 4 as the rights, let
    the user read a file.

    Raises:
        OSError: its file system has no access control lists.
    """
    path.chmod(0o700)
    user, mask = (2, rights, uid), (16, rights, _NO_ID)
    entries = ((1, 7, _NO_ID), user, (4, 0, _NO_ID), mask, (32, 0, _NO_ID))
    packed = b"".join(_ACL_ENTRY.pack(*each) for each in entries)
    os.setxattr(path, _ACL, struct.pack("<I", 2) + packed)
