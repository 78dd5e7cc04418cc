"""Collects what the node reports to Prometheus."""

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hami_py._native import AccountSnapshot
from hami_py.agent.observer import REPORTS, Observer
from hami_py.agent.state import NodeState
from hami_py.model.pods.wire import CardAllocation, NodeMode
from hami_py.monitor import CardFigures, ContainerFigures, NodeFigures
from hami_py.monitor.figures import PodExcess
from hami_py.node.decision import assigned_on
from hami_py.node.devices import cards_of
from hami_py.node.ledger import Entry
from hami_py.node.rows import UNENFORCED, share_of

__all__ = ["Figures"]

_MIB = 1 << 20
_PERCENT = 100
_NS = 1_000_000_000


class Figures:
    """Collects them, from the state of the node and the last look at the processes on its cards."""

    def __init__(self, node: str, state: NodeState, observer: Observer) -> None:
        self._node, self._state, self._observer = node, state, observer
        # By slot and row. The round and a scrape of the metrics both note them.
        self._peaks: dict[tuple[str, int], int] = {}
        self._peaks_lock = threading.Lock()

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
        )

    def _excess(self) -> Iterator[PodExcess]:
        entries = list(self._state.ledger.entries.values())
        unlimited = {entry.pod.uid for entry in entries if entry.mode in UNENFORCED}
        for (uid, card), amount in self._observer.beyond.items():
            pod = self._state.pods.get(uid) if uid is not None else None
            if pod is not None and uid not in unlimited:
                yield PodExcess(pod.metadata.namespace or "", pod.metadata.name, card, amount)

    def note_peaks(self) -> dict[str, AccountSnapshot | None]:
        """Look what is in use now, by slot. Call this regularly."""
        entries = list(self._state.ledger.entries.values())
        uses = {entry.slot: self._state.use(entry.slot) for entry in entries}
        rows = [(entry.slot, row) for entry in entries for row in range(len(entry.cards))]
        with self._peaks_lock:
            self._peaks = {
                (slot, row): max(
                    _usage(uses[slot], row).get("used", 0), self._peaks.get((slot, row), 0)
                )
                for slot, row in rows
            }
        return uses

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
        uses = self.note_peaks()
        started = set()
        for entry in list(self._state.ledger.entries.values()):
            started.add((entry.pod.uid, entry.container))
            names = (entry.pod.namespace, entry.pod.name, entry.container)
            for row, card in enumerate(entry.cards):
                figures = self._limits(names, card, entry.mode, enforces=bool(entry.library))
                yield replace(
                    figures,
                    soft=None if figures.share is None else entry.share_mode == "soft",
                    peak=self._peaks.get((entry.slot, row), 0),
                    **_usage(uses.get(entry.slot), row),
                )
        for pod in self._state.pods.all():
            bound, mode = self._state.bound(pod), self._state.mode()
            for name, cards in bound.assignment.containers.items() if bound else ():
                if (pod.uid, name) not in started and not pod.has_ended(name):
                    names = (pod.metadata.namespace or "", pod.metadata.name, name)
                    for card in cards:
                        yield self._limits(names, card, mode, enforces=self._state.enforces)

    def _limits(
        self, names: tuple[str, str, str], card: CardAllocation, mode: NodeMode, *, enforces: bool
    ) -> ContainerFigures:
        """The figures of a container that uses nothing."""
        is_limited = enforces and mode not in UNENFORCED
        share = share_of(self._state.in_force(card), mode) if is_limited else None
        return ContainerFigures(
            *(*names, card.card),
            limit=card.memory_mib * _MIB if is_limited else None,
            share=None if share is None else share / _PERCENT,
            level="preload" if is_limited else "none",
        )


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
        "driver": measured + sum(each.driver_memory[row] for each in living),
        "engine_s": use.used_ns[row] / _NS,
        "throttled_s": use.throttled_ns[row] / _NS,
        "refusals": use.refusals[row],
        "processes": len(living),
    }
