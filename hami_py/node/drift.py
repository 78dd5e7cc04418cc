"""Use of the cards that no allocation explains.

NVML's list of processes is compared with the ledger and with the accounts of the slots. A process
of a container with a card is in the container's account, because the library puts it there. A
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
"""``bypass``: a process of a container with the card, without limits. ``covered``: one with other
limits than the container's. ``unallocated``: a process of a pod without the card. ``foreign``: a
process outside of all pods."""

MemberKey = tuple[int, int]
"""A process as the accounts have it: its PID in its PID namespace, and the namespace's inode."""

Program = tuple[int, bytes]
"""A program that a process executes: when the process has started, and its auxiliary vector."""

BEYOND_MIB = 64
"""By how much a pod may exceed its limits on a card before it is reported. The driver's figure of a
process differs from what is charged by some MiB."""


@dataclass(frozen=True)
class Observed:
    """A process on a card, as NVML and ``/proc`` show it.

    Attributes:
        card: the card's UUID.
        pid: its PID on the host.
        memory: the bytes that the driver holds for it; 0 = unknown.
        pod: the UID of its pod; None = it is in no pod.
        member: as the accounts would have it; None = unknown.
        command: its command line, for people.
        mapped: the inodes of the files of slots that it has mapped; None = unknown.
        program: what it executes; None = unknown.
    """

    card: str
    pid: int
    memory: int
    pod: str | None
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
            out; its container's processes are not judged.
        pages: by slot, the inode of its limits page; 0 = unknown.
    """
    slots: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        for card in entry.cards:
            slots.setdefault((entry.pod.uid, card.card), []).append(entry.slot)
    found = []
    for process in observed:
        if process.pod is None:
            found.append(Finding("foreign", process))
            continue
        of_pod = slots.get((process.pod, process.card))
        if of_pod is None:
            found.append(Finding("unallocated", process))
        elif process.member is not None and all(slot in members for slot in of_pod):
            own = [slot for slot in of_pod if process.member in members[slot]]
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
    """By pod and card, the bytes that its processes hold beyond its containers' limits.

    Processes outside of all pods count as those of a pod None, which has no limits.
    """
    beyond: Counter[tuple[str | None, str]] = Counter()
    for process in observed:
        beyond[(process.pod, process.card)] += process.memory
    for entry in entries:
        for card in entry.cards:
            beyond[(entry.pod.uid, card.card)] -= card.memory_mib << 20
    return dict(+beyond)
