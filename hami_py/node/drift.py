"""Use of the cards that no allocation explains.

NVML's list of processes is compared with the ledger and with the accounts of the slots. A process
of a container with a card is in the container's account, because the library puts it there. One
that is not there runs without the library: it is static, or of another C library, or it avoids it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from hami_py.node.ledger import Entry

Kind = Literal["bypass", "unallocated", "foreign"]
"""``bypass``: a process of a container with the card, without limits. ``unallocated``: a process of
a pod without the card. ``foreign``: a process outside of all pods."""

MemberKey = tuple[int, int]
"""A process as the accounts have it: its PID in its PID namespace, and the namespace's inode."""


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
    """

    card: str
    pid: int
    memory: int
    pod: str | None
    member: MemberKey | None
    command: str


@dataclass(frozen=True)
class Finding:
    """A process that uses a card without limits, or without having it."""

    kind: Kind
    process: Observed


def findings(
    observed: Iterable[Observed],
    entries: Iterable[Entry],
    members: Mapping[str, Collection[MemberKey]],
) -> list[Finding]:
    """The processes that no allocation explains.

    Args:
        observed: the processes on the cards.
        entries: the ledger's entries.
        members: by slot, the processes in its account. A slot whose account cannot be read is left
            out; its container's processes are not judged.
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
        elif (
            process.member is not None
            and all(slot in members for slot in of_pod)
            and not any(process.member in members[slot] for slot in of_pod)
        ):
            found.append(Finding("bypass", process))
    return found


def unexplained_bytes(observed: Iterable[Observed], entries: Iterable[Entry]) -> dict[str, int]:
    """By card, the bytes that its containers' limits do not cover.

    These are all bytes of processes without the card, and what a pod's processes hold together
    beyond the pod's limits on the card.
    """
    limits: dict[tuple[str, str], int] = {}
    for entry in entries:
        for card in entry.cards:
            key = (entry.pod.uid, card.card)
            limits[key] = limits.get(key, 0) + (card.memory_mib << 20)
    used: dict[tuple[str | None, str], int] = {}
    for process in observed:
        of_pod = (process.pod, process.card)
        used[of_pod] = used.get(of_pod, 0) + process.memory
    beyond: dict[str, int] = {}
    for (pod, uuid), amount in used.items():
        covered = limits.get((pod, uuid), 0) if pod is not None else 0
        beyond[uuid] = beyond.get(uuid, 0) + max(0, amount - covered)
    return beyond
