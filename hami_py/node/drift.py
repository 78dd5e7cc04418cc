"""Use of the cards that no allocation explains.

NVML's list of processes is compared with the ledger and with the accounts of the slots. A process
of an owner with a card is in the account of one of its slices, because the library puts it there. A
process that is not in the account runs without the library: it is static, or of another C library,
or it avoids the library. A process in the account has mapped the limits page of the slot. If it has
not, a mount has covered the page, and the library has read another page.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from hami_py.node.ledger import Entry

Kind = Literal["bypass", "covered", "unallocated", "foreign"]
"""``bypass``: a process of an owner with the card, without limits. ``covered``: one with other
limits than its slice's. ``unallocated``: a process of an owner without the card. ``foreign``: a
process of no owner."""

MemberKey = tuple[int, int]
"""A process as the accounts have it: its PID in its PID namespace, and the namespace's inode."""

Program = tuple[int, bytes]
"""A program that a process executes: when the process has started, and its auxiliary vector."""

BEYOND_MIB = 64
"""By how much an owner may exceed its limits on a card before it is reported. The driver's figure
of a process differs from what is charged by some MiB."""


@dataclass(frozen=True)
class Observed:
    """A process on a card, as NVML and ``/proc`` show it.

    Attributes:
        card: the card's UUID.
        pid: its PID on the host.
        memory: the bytes that the driver holds for it; 0 = unknown.
        owner: whose it is, as the ledger names owners; None = nobody's: it is in no pod.
        member: as the accounts would have it; None = unknown.
        command: its command line, for people.
        mapped: the inodes of the files of slots that it has mapped; None = unknown.
        program: what it executes; None = unknown.
    """

    card: str
    pid: int
    memory: int
    owner: str | None
    member: MemberKey | None
    command: str
    mapped: Collection[int] | None = None
    program: Program | None = None


@dataclass(frozen=True)
class Finding:
    """A process that uses a card without limits, or without having it."""

    kind: Kind
    process: Observed


def findings(
    observed: Iterable[Observed],
    entries: Iterable[Entry],
    members: Mapping[str, Collection[MemberKey]],
    pages: Mapping[str, int],
) -> list[Finding]:
    """The processes that no allocation explains.

    Args:
        observed: the processes on the cards.
        entries: the ledger's entries.
        members: by slot, the processes in its account. A slot whose account cannot be read is left
            out; its processes are not judged.
        pages: by slot, the inode of its limits page; 0 = unknown.
    """
    slots: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        for card in entry.seen:
            slots.setdefault((entry.owner, card.card), []).append(entry.slot)
    found = []
    for process in observed:
        if process.owner is None:
            found.append(Finding("foreign", process))
            continue
        of_owner = slots.get((process.owner, process.card))
        if of_owner is None:
            found.append(Finding("unallocated", process))
        elif process.member is not None and all(slot in members for slot in of_owner):
            own = [slot for slot in of_owner if process.member in members[slot]]
            if not own:
                found.append(Finding("bypass", process))
            elif process.mapped is not None and not any(
                pages.get(slot, 0) in {0, *process.mapped} for slot in own
            ):
                found.append(Finding("covered", process))
    return found


def excess(
    observed: Iterable[Observed], entries: Iterable[Entry]
) -> dict[tuple[str | None, str], int]:
    """By owner and card, the bytes that its processes hold beyond the limits of its slices.

    Processes of no owner count as those of an owner None, who has no limits.
    """
    beyond: Counter[tuple[str | None, str]] = Counter()
    for process in observed:
        beyond[(process.owner, process.card)] += process.memory
    # Containers of a pod may share a slot.
    for entry in {(entry.owner, entry.directory): entry for entry in entries}.values():
        for card in entry.seen:
            beyond[(entry.owner, card.card)] -= card.memory_mib << 20
    return dict(+beyond)
