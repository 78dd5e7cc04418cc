"""What happens in a slice, found by comparing two looks at it.

The account has no bell: the library adds to its own words, at memory speed, and tells nobody. So
whoever wants to know looks from time to time, and what has changed between two looks is what has
happened. Counts are never lost that way, only moments.

What is read is not one instant: a process that is being struck off the books may for one look be
counted in neither place. So counts that went back are held against the most ever seen.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from hami_py.model.limits import Mode, Priority

EventKind: TypeAlias = Literal["joined", "refused", "over", "within", "share", "left"]
ProcessKey: TypeAlias = tuple[int, int, int]
"""PID namespace, pid and start time: one process for ever."""


@dataclass(frozen=True)
class Event:
    """Something that has happened in a slice.

    Attributes:
        kind: ``joined``, ``left``: a process has begun to use CUDA in the slice, or has ended.
            ``refused``: a request was refused for the limit. ``over``: the slice holds more than
            its limit, which was lowered, and gets no more until it has given enough back.
            ``within``: it has. ``share``: its share of the card's time, the mode or the priority
            was changed.
        pid: the process, as it sees itself; None for ``over``, ``within`` and ``share``, and for
            what processes were refused that had ended before anyone looked.
        card: the card's UUID; None for ``joined`` and ``left``.
        count: how many requests were refused; 0 for the other kinds.
        memory_used: bytes that the slice holds on the card; None for ``joined`` and ``left``.
        memory_limit: bytes, the slice's own limit on the card; None = none.
        share: percent of the card's time that is the slice's from now on; None = no limit, and for
            the other kinds.
        mode: how the share holds from now on; None for the other kinds.
        priority: before or after whom the slice gets the card from now on; None for the other
            kinds.
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
class CardLook:
    """One card, as it was seen: bytes, requests refused to all processes so far, and the share."""

    memory_used: int
    memory_limit: int | None
    refusals: int = 0
    share: int | None = None
    mode: Mode = "hard"
    priority: Priority = "normal"

    @property
    def is_over(self) -> bool:
        """More is held than may be."""
        return self.memory_limit is not None and self.memory_used > self.memory_limit

    @property
    def regime(self) -> tuple[int | None, Mode, Priority]:
        """What is said of the card's time."""
        return self.share, self.mode, self.priority


@dataclass(frozen=True)
class ProcessLook:
    """One process, as it was seen: a dead one is seen until its place is given away."""

    alive: bool
    refusals: Mapping[str, int] = field(default_factory=dict)
    """Requests refused to it so far, by card."""


@dataclass(frozen=True)
class Look:
    """A slice, as it was seen once; the default is a slice that nobody has used yet."""

    cards: Mapping[str, CardLook] = field(default_factory=dict)
    processes: Mapping[ProcessKey, ProcessLook] = field(default_factory=dict)

    def refusals(self, uuid: str, key: ProcessKey | None = None) -> int:
        """Requests refused so far on a card, to all or to one process."""
        if key is None:
            return self.cards[uuid].refusals if uuid in self.cards else 0
        return self.processes[key].refusals.get(uuid, 0) if key in self.processes else 0

    def lives(self, key: ProcessKey) -> bool:
        """The process was seen alive."""
        return key in self.processes and self.processes[key].alive


def changes(before: Look, after: Look) -> tuple[list[Event], Look]:
    """What has happened between two looks, and the second one as the next is to be held against.

    In this order: who joined, what was refused, which limits were crossed, which shares were
    changed, who left.
    """
    after = _never_back(before, after)
    joined = [key for key in after.processes if key not in before.processes]
    were_there = [key for key in before.processes if before.lives(key)] + joined
    events = [
        *(Event("joined", pid=key[1]) for key in joined),
        *_refused(before, after),
        *_crossed(before, after),
        *_shared(before, after),
        *(Event("left", pid=key[1]) for key in were_there if not after.lives(key)),
    ]
    return events, after


def _never_back(before: Look, after: Look) -> Look:
    """Counts only grow, and a sum by no less than its parts."""
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
    after = Look(after.cards, processes)
    cards = {}
    for uuid, card in after.cards.items():
        grown = sum(after.refusals(uuid, key) - before.refusals(uuid, key) for key in processes)
        least = before.refusals(uuid) + grown
        cards[uuid] = replace(card, refusals=max(card.refusals, least))
    return Look(cards, processes)


def _refused(before: Look, after: Look) -> Iterator[Event]:
    for uuid, card in after.cards.items():
        refused: list[tuple[int | None, int]] = [
            (key[1], after.refusals(uuid, key) - before.refusals(uuid, key))
            for key in after.processes
        ]
        # Those that had ended, and whose place was given away, before anyone looked.
        rest = card.refusals - before.refusals(uuid) - sum(count for _pid, count in refused)
        for pid, count in [*refused, (None, rest)]:
            if count:
                yield Event("refused", pid, uuid, count, card.memory_used, card.memory_limit)


def _crossed(before: Look, after: Look) -> Iterator[Event]:
    for uuid, card in after.cards.items():
        was_over = uuid in before.cards and before.cards[uuid].is_over
        if card.is_over != was_over:
            kind: EventKind = "over" if card.is_over else "within"
            yield Event(kind, None, uuid, 0, card.memory_used, card.memory_limit)


def _shared(before: Look, after: Look) -> Iterator[Event]:
    for uuid, card in after.cards.items():
        # The share that a slice begins with is nothing that has happened in it.
        if uuid in before.cards and before.cards[uuid].regime != card.regime:
            now = Event("share", None, uuid, 0, card.memory_used, card.memory_limit)
            yield replace(now, share=card.share, mode=card.mode, priority=card.priority)
