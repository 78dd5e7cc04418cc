"""Looks which processes use the cards, and finds those that no allocation explains.

It needs a thread of its own, because NVML may hang. The memory that no allocation covers is noted
with the cards, so that it is not allocated.
"""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from hami_py.errors import DamagedFile, HamiError
from hami_py.gpu.inventory import inventory
from hami_py.gpu.nvml import session
from hami_py.gpu.processes import CardProcess, card_processes, memory_used
from hami_py.gpu.sweep import identity_of, look
from hami_py.model.cards import is_mig
from hami_py.node.cards import Cards
from hami_py.node.drift import BEYOND_MIB, Finding, Kind, Observed, Program, excess, findings
from hami_py.node.ledger import Entry, Ledger
from hami_py.node.library import check_format
from hami_py.node.processes import mapped_files
from hami_py.node.slots import Slots

_MIB = 1 << 20

_STEP_MIB = 256
"""Foreign memory is noted in steps, so that its small changes are published by no write."""

_TWICE = 2
"""A process may be on a card for a moment before it is in its account."""

_READ_AGAIN_S = 30.0
"""How often the cards are read again, while one of them has not answered yet."""

_SHOWN = 100
"""Characters of a command line in a message."""


class Observer:
    """Observes the processes on the cards of the node.

    Args:
        cards: the node's cards; one that answers late, and foreign memory, are noted there.
        ledger: what is allocated.
        slots: the slots.
        owner_of: whose a process is, by its directory in ``/proc``; OSError: it has ended.
        changed: is called when the cards have changed.
        containers: how many containers may share a card that answers late.

    Attributes:
        found: the findings of the last two looks.
        used: the bytes in use by card, by NVML; without the cards that did not answer.
        beyond: by owner and card, the bytes beyond the owner's limits; None = of no owner.
        exceeding: those keys of ``beyond`` that were far beyond in the last two looks.
    """

    def __init__(
        self,
        cards: Cards,
        ledger: Ledger,
        slots: Slots,
        owner_of: Callable[[Path], str | None],
        *,
        changed: Callable[[], None],
        containers: int,
    ) -> None:
        self.found: list[Finding] = []
        self.used: dict[str, int] = {}
        self.beyond: dict[tuple[str | None, str], int] = {}
        self.exceeding: set[tuple[str | None, str]] = set()
        self._cards, self._ledger, self._slots, self._owner_of = cards, ledger, slots, owner_of
        self._changed, self._containers = changed, containers
        self._read_at = time.monotonic()
        self._seen: Counter[tuple[Kind, str, int]] = Counter()
        self._known: dict[int, Observed] = {}

    def observe(self) -> None:
        """Look once.

        Raises:
            HamiError: NVML fails, and the processes on the cards are unknown.
        """
        try:
            # A session for each look: NVML finds a card again only when no session is open.
            with session():
                self._add_cards()
                self.used = memory_used()
                processes = card_processes()
        except HamiError:
            self.used = {}
            raise
        self.look(processes)

    def _add_cards(self) -> None:
        """Add a card that has answered for the first time."""
        if not self._cards.are_complete and time.monotonic() - self._read_at > _READ_AGAIN_S:
            self._read_at = time.monotonic()
            if self._cards.add(inventory(self._containers)):
                self._changed()

    def look(self, processes: list[CardProcess]) -> None:
        """Compare these processes with what is allocated."""
        device = self._slots.device
        found = (self._observed(each, device) for each in processes)
        observed = [each for each in found if each is not None]
        entries = list(self._ledger.entries.values())
        members, pages = {}, {}
        on_cards = {each.owner for each in observed}
        for entry in entries:
            if entry.owner in on_cards:
                listed = self._members(entry)
                if listed is not None:
                    members[entry.slot] = listed
                pages[entry.slot] = self._slots.page_inode(entry.directory)
        # Nobody knows whose the other MIG instances are.
        known = {card.uuid for card in self._cards.all}.union(*(each.uuids for each in entries))
        observed = [each for each in observed if each.card in known or not is_mig(each.card)]
        # One that ends may still hold memory, and has no command and no maps any more.
        live = [each for each in observed if each.program and each.program[1]]
        now = findings(live, entries, members, pages)
        keys = {(each.kind, each.process.card, each.process.pid): each for each in now}
        self._seen = Counter({key: self._seen[key] + 1 for key in keys})
        self.found = [keys[key] for key, times in self._seen.items() if times >= _TWICE]
        # What is mapped may change, and is read again of those that are found.
        again = {finding.process.pid for finding in now}
        self._known = {each.pid: each for each in observed if each.pid not in again}
        self._note_excess(excess(observed, entries))

    def _members(self, entry: Entry) -> set[tuple[int, int]] | None:
        """The processes in a slice's account; None = this process cannot read it."""
        use = self._slots.use_at(entry.directory)[1]
        try:
            # Files of an unknown format look damaged.
            check_format(Path(entry.library))
            use = use or self._slots.use(entry.directory)
        except DamagedFile:
            # A program could truncate its account so that others need not be in it.
            return set()
        except (HamiError, OSError):
            return None
        return {(each.pid, each.pid_namespace) for each in use.processes}

    def _note_excess(self, beyond: dict[tuple[str | None, str], int]) -> None:
        far = {key for key, amount in beyond.items() if amount > BEYOND_MIB * _MIB}
        self.exceeding = {key for key in far if self.beyond.get(key, 0) > BEYOND_MIB * _MIB}
        self.beyond = beyond
        foreign: Counter[str] = Counter()
        for (_, card), amount in beyond.items():
            foreign[card] += amount
        step = _STEP_MIB * _MIB
        steps = {card: -(-amount // step) * _STEP_MIB for card, amount in foreign.items()}
        if self._cards.set_foreign(steps):
            self._changed()

    def _observed(self, process: CardProcess, device: int) -> Observed | None:
        """What ``/proc`` shows of a process; None if it has ended. Read once for each program."""
        memory = process.memory or 0
        program = program_of(process.pid)
        if program is None:
            return None
        before = self._known.get(process.pid)
        if before is not None and before.program == program:
            return replace(before, card=process.card, memory=memory)
        here = Path(f"/proc/{process.pid}")
        try:
            owner = self._owner_of(here)
            command = (here / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            return None
        identity = identity_of(process.pid)
        member = None
        if identity is not None and identity.namespace is not None:
            member = (identity.pid_in_namespace, identity.namespace.inode)
        shown = "".join(each if each.isprintable() else "?" for each in command.strip()[:_SHOWN])
        mapped = mapped_files(process.pid, device) if owner is not None else None
        return Observed(process.card, process.pid, memory, owner, member, shown, mapped, program)


def program_of(pid: int) -> Program | None:
    """A key that changes when a process executes a program; None if it has ended.

    The auxiliary vector has random addresses, which are chosen anew by ``execve``. It is empty when
    the process is ending.
    """
    seen, auxiliary = look(pid), b""
    with suppress(OSError):
        auxiliary = Path(f"/proc/{pid}/auxv").read_bytes()
    return (seen.start_time, auxiliary) if seen is not None else None
