"""Events of a slice, found by comparing two snapshots of it.

The preload library writes to the account at memory speed and notifies no other process. So a
watcher reads the account from time to time, and derives the events from what changed. No count is
lost that way; only the exact moment is.

A snapshot is not atomic: while a dead process is removed from the account, one snapshot may count
its refusals neither for the process nor for the slice. So a count never goes below the highest
value seen.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from hami_py.model.limits import Mode, Priority
from hami_py.model.usage import SliceCard

EventKind: TypeAlias = Literal["joined", "refused", "over", "within", "share", "left"]
ProcessKey: TypeAlias = tuple[int, int, int]
"""PID namespace, pid and start time: unique for ever."""


@dataclass(frozen=True)
class Event:
    """An event in a slice.

    Attributes:
        kind: ``joined``, ``left``: a process began to use CUDA in the slice, or ended.
            ``refused``: requests were refused because of the limit. ``over``: the slice holds more
            than its limit, which was lowered, and gets no memory until it has released enough.
            ``within``: it has released enough. ``share``: its share of the card's time, the mode or
            the priority changed.
        pid: the process, in its own PID namespace. None for ``over``, ``within`` and ``share``, and
            for refusals to processes that ended before a snapshot was taken.
        card: the card's UUID; None for ``joined`` and ``left``.
        count: number of refused requests; 0 for other kinds.
        memory_used: bytes that the slice holds on the card; None for ``joined`` and ``left``.
        memory_limit: bytes, the slice's own limit on the card; None = no limit.
        share: the new share in percent of the card's time; None = no limit, and for other kinds.
        mode: the new mode of the share; None for other kinds.
        priority: the new priority; None for other kinds.
    """

    kind: EventKind
    pid: int | None = None
    card: str | None = None
    count: int = 0
    memory_used: int | None = None
    memory_limit: int | None = None
    share: int | None = None
    mode: Mode | None = None
    priority: Priority | None = None


@dataclass(frozen=True)
class ProcessSnapshot:
    """One process. A dead process is visible until its entry is reused."""

    alive: bool
    refusals: Mapping[str, int] = field(default_factory=dict)
    """Requests refused to it so far, by card."""


@dataclass(frozen=True)
class SliceSnapshot:
    """A slice at one moment. The default is a slice that no process has used yet."""

    cards: Mapping[str, SliceCard] = field(default_factory=dict)
    processes: Mapping[ProcessKey, ProcessSnapshot] = field(default_factory=dict)

    def refusals(self, uuid: str, key: ProcessKey | None = None) -> int:
        """Requests refused so far on a card, to all processes or to one."""
        if key is None:
            return self.cards[uuid].refusals if uuid in self.cards else 0
        return self.processes[key].refusals.get(uuid, 0) if key in self.processes else 0

    def is_alive(self, key: ProcessKey) -> bool:
        """Whether the process is in the snapshot and alive."""
        return key in self.processes and self.processes[key].alive


def changes(before: SliceSnapshot, after: SliceSnapshot) -> tuple[list[Event], SliceSnapshot]:
    """The events between two snapshots, and the snapshot to compare the next one with.

    The order is: joined, refused, limits crossed, shares changed, left.
    """
    after = _monotonic(before, after)
    joined = [key for key in after.processes if key not in before.processes]
    present = [key for key in before.processes if before.is_alive(key)] + joined
    events = [
        *(Event("joined", pid=key[1]) for key in joined),
        *_refused(before, after),
        *_crossed(before, after),
        *_share_changed(before, after),
        *(Event("left", pid=key[1]) for key in present if not after.is_alive(key)),
    ]
    return events, after


def _monotonic(before: SliceSnapshot, after: SliceSnapshot) -> SliceSnapshot:
    """Let counts only grow, and the sum of a card by at least the sum of its processes."""
    processes = {
        key: replace(
            process,
            refusals={
                uuid: max(count, before.refusals(uuid, key))
                for uuid, count in process.refusals.items()
            },
        )
        for key, process in after.processes.items()
    }
    after = SliceSnapshot(after.cards, processes)
    cards = {}
    for uuid, card in after.cards.items():
        grown = sum(after.refusals(uuid, key) - before.refusals(uuid, key) for key in processes)
        least = before.refusals(uuid) + grown
        cards[uuid] = replace(card, refusals=max(card.refusals, least))
    return SliceSnapshot(cards, processes)


def _refused(before: SliceSnapshot, after: SliceSnapshot) -> Iterator[Event]:
    for uuid, card in after.cards.items():
        refused: list[tuple[int | None, int]] = [
            (key[1], after.refusals(uuid, key) - before.refusals(uuid, key))
            for key in after.processes
        ]
        # The refusals of processes that ended, and whose entry was reused, between the snapshots.
        rest = card.refusals - before.refusals(uuid) - sum(count for _pid, count in refused)
        for pid, count in [*refused, (None, rest)]:
            if count:
                yield Event("refused", pid, uuid, count, card.memory_used, card.memory_limit)


def _crossed(before: SliceSnapshot, after: SliceSnapshot) -> Iterator[Event]:
    for uuid, card in after.cards.items():
        is_over, was_over = _is_over(card), _is_over(before.cards.get(uuid))
        if is_over != was_over:
            kind: EventKind = "over" if is_over else "within"
            yield Event(kind, None, uuid, 0, card.memory_used, card.memory_limit)


def _is_over(card: SliceCard | None) -> bool:
    """Whether the slice holds more than its limit."""
    return (
        card is not None and card.memory_limit is not None and card.memory_used > card.memory_limit
    )


def _share_changed(before: SliceSnapshot, after: SliceSnapshot) -> Iterator[Event]:
    for uuid, card in after.cards.items():
        was = before.cards.get(uuid)
        # The first share of a slice is not a change.
        if was is not None and _regime(was) != _regime(card):
            now = Event("share", None, uuid, 0, card.memory_used, card.memory_limit)
            yield replace(now, share=card.share, mode=card.mode, priority=card.priority)


def _regime(card: SliceCard) -> tuple[int | None, Mode, Priority]:
    return card.share, card.mode, card.priority
