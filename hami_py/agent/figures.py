"""Collects what the node reports to Prometheus."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import get_args

from hami_py._native import AccountSnapshot, ProcessUse
from hami_py.agent.holds import Holds
from hami_py.agent.observer import Observer
from hami_py.agent.state import NodeState
from hami_py.model.pods.wire import CardAllocation, NodeMode
from hami_py.monitor import CardFigures, ContainerFigures, NodeFigures
from hami_py.monitor.figures import Level, PodExcess
from hami_py.node.decision import assigned_on
from hami_py.node.devices import cards_of
from hami_py.node.drift import Kind
from hami_py.node.ledger import Entry
from hami_py.node.rows import UNENFORCED, share_of

__all__ = ["Figures"]

_MIB = 1 << 20
_PERCENT = 100
_NS = 1_000_000_000

_KINDS: tuple[Kind, ...] = get_args(Kind)


class Figures:
    """Collects them.

    Args:
        node: the node's name.
        state: what is known of the node.
        observer: has looked at the processes on the cards.
        holds: the containers that wait.
    """

    def __init__(self, node: str, state: NodeState, observer: Observer, holds: Holds) -> None:
        self._node, self._state, self._observer, self._holds = node, state, observer, holds
        # By slot and row. The round and a scrape of the metrics both note them.
        self._peaks: dict[tuple[str, int], int] = {}
        self._peaks_lock = threading.Lock()

    def collect(self, *, registered: bool) -> NodeFigures:
        """The figures now."""
        kinds = Counter(finding.kind for finding in self._observer.found)
        return NodeFigures(
            self._node,
            tuple(self._cards()),
            tuple(self._containers()),
            {kind: kinds[kind] for kind in _KINDS},
            len(self._holds.all()),
            registered,
            sum(map(_has_other_devices, list(self._state.ledger.entries.values()))),
            tuple(self._excess()),
        )

    def _excess(self) -> Iterator[PodExcess]:
        for (uid, card), amount in self._observer.beyond.items():
            pod = self._state.pods.get(uid)
            if pod is not None:
                yield PodExcess(pod.metadata.namespace or "", pod.metadata.name, card, amount)

    def note_peaks(self) -> None:
        """Look how much memory is in use now. Call this regularly."""
        entries = list(self._state.ledger.entries.values())
        now = {}
        for entry in entries:
            use = self._state.use(entry.slot)
            for row in range(len(entry.cards)):
                now[(entry.slot, row)] = sum(each.memory[row] for each in _living(use))
        with self._peaks_lock:
            self._peaks = {key: max(used, self._peaks.get(key, 0)) for key, used in now.items()}

    def _peak(self, slot: str, row: int, used: int) -> int:
        """The peak, which is never less than a use that the metrics have shown."""
        with self._peaks_lock:
            peak = max(used, self._peaks.get((slot, row), 0))
            self._peaks[(slot, row)] = peak
        return peak

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
        entries = list(self._state.ledger.entries.values())
        started = {(entry.pod.uid, entry.container) for entry in entries}
        for entry in entries:
            use = self._state.use(entry.slot)
            for row, card in enumerate(entry.cards):
                yield self._started(entry, row, card, use)
        for pod in self._state.pods.all():
            bound = self._state.bound(pod)
            for name, cards in bound.assignment.containers.items() if bound else ():
                if (pod.uid, name) not in started and not pod.has_ended(name):
                    namespace, mode = pod.metadata.namespace or "", self._state.mode()
                    level = _level(mode, enforces=self._state.enforces)
                    for card in cards:
                        yield ContainerFigures(
                            *(namespace, pod.metadata.name, name, card.card),
                            limit=None if level == "none" else card.memory_mib * _MIB,
                            share=self._share(card, mode, level),
                            level=level,
                        )

    def _started(
        self, entry: Entry, row: int, card: CardAllocation, use: AccountSnapshot | None
    ) -> ContainerFigures:
        level = _level(entry.mode, enforces=bool(entry.library))
        living = _living(use)
        measured = use.measured_memory[row] if use is not None and living else 0
        used = measured + sum(each.memory[row] for each in living)
        share = self._share(card, entry.mode, level)
        return ContainerFigures(
            *(entry.pod.namespace, entry.pod.name, entry.container, card.card),
            limit=None if level == "none" else card.memory_mib * _MIB,
            share=share,
            level=level,
            soft=None if share is None else entry.share_mode == "soft",
            used=used,
            driver=measured + sum(each.driver_memory[row] for each in living),
            peak=self._peak(entry.slot, row, used),
            engine_s=use.used_ns[row] / _NS if use is not None else 0.0,
            throttled_s=use.throttled_ns[row] / _NS if use is not None else 0.0,
            refusals=use.refusals[row] if use is not None else 0,
            processes=len(living),
        )

    def _share(self, card: CardAllocation, mode: NodeMode, level: Level) -> float | None:
        share = share_of(self._state.in_force(card), mode)
        return None if share is None or level == "none" else share / _PERCENT


def _has_other_devices(entry: Entry) -> bool:
    """The kubelet and what reads its list then show other cards than the container's."""
    return {*cards_of(entry.ids)} != {card.card for card in entry.cards}


def _level(mode: NodeMode, *, enforces: bool) -> Level:
    return "preload" if enforces and mode not in UNENFORCED else "none"


def _living(use: AccountSnapshot | None) -> list[ProcessUse]:
    """The processes that live. Dead ones stay in the account until another one needs their room."""
    return [each for each in use.processes if each.alive] if use is not None else []
