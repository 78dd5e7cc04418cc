"""Collects what the node reports to Prometheus and to ``hami inspect`` and ``hami top``."""

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from hami_py._native import AccountSnapshot
from hami_py.agent.observer import REPORTS, Observer
from hami_py.agent.starts import StartTimes
from hami_py.agent.state import NodeState
from hami_py.model.pods.wire import CardAllocation, NodeMode
from hami_py.monitor import CardFigures, ContainerFigures, NodeFigures
from hami_py.monitor.figures import Level, PodExcess
from hami_py.node.decision import assigned_on
from hami_py.node.devices import cards_of
from hami_py.node.ledger import Entry
from hami_py.node.rows import UNENFORCED, share_of

_MIB = 1 << 20
_PERCENT = 100
_NS = 1_000_000_000

_SHARE_S = 1.0
"""The seconds over which the used share is measured, at least: many leases of up to 23 ms."""


class Figures:
    """Collects them, from the state of the node and the last look at the processes on its cards."""

    def __init__(
        self,
        node: str,
        state: NodeState,
        observer: Observer,
    ) -> None:
        self._node, self._state, self._observer = node, state, observer
        # By slot and row. The round and a scrape of the metrics both note them.
        self._rates: dict[tuple[str, int], _Rate] = {}
        self._notes_lock = threading.Lock()
        self._starts = StartTimes()

    def collect(self, *, registered: bool, waiting: int) -> NodeFigures:
        """The figures now.

        Args:
            registered: the kubelet knows the devices.
            waiting: the number of containers that wait at their start.
        """
        kinds = Counter(finding.kind for finding in self._observer.found)
        return NodeFigures(
            self._node,
            tuple(self._cards()),
            tuple(self._containers()),
            {kind: kinds[kind] for kind in REPORTS},
            waiting,
            registered,
            sum(map(_has_other_devices, list(self._state.ledger.entries.values()))),
            tuple(self._excess()),
            _level(self._state.mode()),
            self._starts.figures(),
        )

    def _excess(self) -> Iterator[PodExcess]:
        entries = list(self._state.ledger.entries.values())
        unlimited = {entry.pod.uid for entry in entries if entry.mode in UNENFORCED}
        for (uid, card), amount in self._observer.beyond.items():
            pod = self._state.pods.get(uid) if uid is not None else None
            if pod is not None and uid not in unlimited:
                yield PodExcess(pod.metadata.namespace or "", pod.metadata.name, card, amount)

    def note_use(self) -> dict[str, AccountSnapshot | None]:
        """Look what is in use now, by slot. Call this once a second."""
        entries = list(self._state.ledger.entries.values())
        uses = {entry.slot: self._state.use_at(entry.slot) for entry in entries}
        rows = [(entry.slot, row) for entry in entries for row in range(len(entry.cards))]
        with self._notes_lock:
            if self._state.pods.is_listed:
                self._starts.look(self._state.pods.all())
            read = ((slot, row, *uses[slot]) for slot, row in rows)
            # By the time of the reading, which may be a second ago: other parts read too.
            self._rates = {
                (slot, row): self._rates.get((slot, row), _NEW).at(at_s, use.used_ns[row])
                for slot, row, at_s, use in read
                if use is not None
            }
        return {slot: use for slot, (_, use) in uses.items()}

    def _cards(self) -> Iterator[CardFigures]:
        view = self._state.view()
        for card in self._state.published_cards():
            memory_mib, cores = assigned_on(view, card.uuid)
            yield CardFigures(
                uuid=card.uuid,
                index=card.index,
                model=card.model,
                memory=card.memory_mib * _MIB,
                used=self._observer.used.get(card.uuid),
                allocated=memory_mib * _MIB,
                share_allocated=cores / _PERCENT,
                foreign=card.foreign_mib * _MIB,
                healthy=card.healthy,
            )

    def _containers(self) -> Iterator[ContainerFigures]:
        uses = self.note_use()
        started = set()
        for entry in list(self._state.ledger.entries.values()):
            started.add((entry.pod.uid, entry.container))
            names = (entry.pod.namespace, entry.pod.name, entry.container)
            for row, card in enumerate(entry.cards):
                figures = self._limits(names, card, entry.mode)
                yield replace(
                    figures,
                    soft=None if figures.share is None else entry.share_mode == "soft",
                    share_used=self._rates.get((entry.slot, row), _NEW).share,
                    **_usage(uses.get(entry.slot), row),
                )
        for pod in self._state.pods.all():
            bound, mode = self._state.bound(pod), self._state.mode()
            for name, cards in bound.assignment.containers.items() if bound else ():
                if (pod.uid, name) not in started and not pod.has_ended(name):
                    names = (pod.metadata.namespace or "", pod.metadata.name, name)
                    for card in cards:
                        yield self._limits(names, card, mode)

    def _limits(
        self, names: tuple[str, str, str], card: CardAllocation, mode: NodeMode
    ) -> ContainerFigures:
        """The figures of a container that uses nothing."""
        is_limited = mode not in UNENFORCED
        share = share_of(self._state.in_force(card), mode) if is_limited else None
        return ContainerFigures(
            *(*names, card.card),
            limit=card.memory_mib * _MIB if is_limited else None,
            share=None if share is None else share / _PERCENT,
            level=_level(mode),
        )


@dataclass(frozen=True)
class _Rate:
    """The part of a card's time that a container has used, between two readings."""

    since_s: float | None = None
    engine_ns: int = 0
    share: float | None = None

    def at(self, now_s: float, engine_ns: int) -> "_Rate":
        """The rate after a reading; unchanged if the last one is too recent."""
        if self.since_s is None:
            return _Rate(now_s, engine_ns)
        elapsed_s = now_s - self.since_s
        if elapsed_s < _SHARE_S:
            return self
        # Not below 0: while a process ends, one reading may count its time in neither place.
        share = max(0.0, engine_ns - self.engine_ns) / _NS / elapsed_s
        return _Rate(now_s, engine_ns, share)


_NEW = _Rate()


def _level(mode: NodeMode) -> Level:
    return "none" if mode in UNENFORCED else "preload"


def _has_other_devices(entry: Entry) -> bool:
    """The kubelet and what reads its list then show other cards than the container's."""
    return {*cards_of(entry.ids)} != {card.card for card in entry.cards}


def _usage(use: AccountSnapshot | None, row: int) -> dict[str, Any]:
    """The figures of a container that its account has, by their names; none if it is unreadable."""
    if use is None:
        return {}
    # Dead processes stay in the account until another one needs their room.
    living = [each for each in use.processes if each.alive]
    measured = use.measured_memory[row] if living else 0
    return {
        "used": measured + sum(each.memory[row] for each in living),
        "peak": use.memory_peak[row],
        "driver": measured + sum(each.driver_memory[row] for each in living),
        "engine_s": use.used_ns[row] / _NS,
        "throttled_s": use.throttled_ns[row] / _NS,
        "refusals": use.refusals[row],
        "processes": len(living),
    }
