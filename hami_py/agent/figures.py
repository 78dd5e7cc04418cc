"""Collects what the node reports to Prometheus and to ``hami inspect`` and ``hami top``."""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from hami_py._native import AccountSnapshot, ProcessUse
from hami_py.agent.pods import NodePod
from hami_py.agent.reports import REPORTS
from hami_py.agent.starts import StartTimes
from hami_py.agent.state import NodeState
from hami_py.model import CardLimit, Mode, NodeCard, Rates, SliceUse, slice_card
from hami_py.model.pods.wire import CardAllocation, NodeMode
from hami_py.monitor import NodeFigures
from hami_py.monitor.figures import PodExcess
from hami_py.node.decision import assigned_on
from hami_py.node.devices import cards_of
from hami_py.node.ledger import Entry
from hami_py.node.levels import enforcement
from hami_py.node.observer import Observer
from hami_py.node.rows import memory_of, share_of

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
        self._rates = Rates[tuple[str, int]](_SHARE_S)
        self._shares: Mapping[tuple[str, int], float | None] = {}
        self._notes_lock = threading.Lock()
        self._starts = StartTimes()

    def collect(self, *, registered: bool, waiting: int) -> NodeFigures:
        """The figures now.

        Args:
            registered: the kubelet knows the devices.
            waiting: the number of containers that wait at their start.
        """
        kinds = Counter(finding.kind for finding in self._observer.found)
        cards = tuple(self._cards())
        return NodeFigures(
            self._node,
            cards,
            tuple(self._containers({card.uuid: card for card in cards})),
            {kind: kinds[kind] for kind in REPORTS},
            waiting,
            registered,
            sum(map(_has_other_devices, list(self._state.ledger.entries.values()))),
            tuple(self._excess()),
            self._state.enforcement(self._state.mode()).level,
            self._starts.figures(),
        )

    def _excess(self) -> Iterator[PodExcess]:
        entries = list(self._state.ledger.entries.values())
        unlimited = {
            each.owner for each in entries if enforcement(each.mode, mig=each.mig).level == "none"
        }
        for (uid, card), amount in self._observer.beyond.items():
            pod = self._state.pods.get(uid) if uid is not None else None
            if pod is not None and uid not in unlimited:
                yield PodExcess(pod.metadata.namespace or "", pod.metadata.name, card, amount)

    def note_use(self) -> dict[str, AccountSnapshot | None]:
        """Look what is in use now, by slot. Call this once a second."""
        entries = list(self._state.ledger.entries.values())
        uses = {entry.slot: self._state.slots.use_at(entry.directory) for entry in entries}
        rows = [(entry.slot, row) for entry in entries for row in range(len(entry.cards))]
        with self._notes_lock:
            if self._state.pods.is_listed:
                self._starts.look(self._state.pods.all())
            # By the time of the reading, which may be a second ago: other parts read too.
            read = ((slot, row, *uses[slot]) for slot, row in rows)
            self._shares = self._rates.take(
                ((slot, row), at_s, use.used_ns[row] / _NS)
                for slot, row, at_s, use in read
                if use is not None
            )
        return {slot: use for slot, (_, use) in uses.items()}

    def _cards(self) -> Iterator[NodeCard]:
        view = self._state.view()
        for card in self._state.published_cards():
            memory_mib, cores = assigned_on(view, card.uuid)
            yield NodeCard(
                uuid=card.uuid,
                index=card.index,
                model=card.model,
                memory=card.memory_mib * _MIB,
                memory_used=self._observer.used.get(card.uuid),
                memory_allocated=memory_mib * _MIB,
                share_allocated=cores / _PERCENT,
                foreign=card.foreign_mib * _MIB,
                healthy=card.healthy,
            )

    def _containers(self, on_node: Mapping[str, NodeCard]) -> Iterator[SliceUse]:
        accounts, shares = self.note_use(), self._shares
        entries = list(self._state.ledger.entries.values())
        started = {(entry.owner, entry.container) for entry in entries}
        running = [entry for entry in entries if not self._state.has_ended(entry)]
        # Containers that share a slot have its amounts together.
        sharing = Counter(entry.directory for entry in running)
        parts = {entry.slot: 1 / sharing[entry.directory] for entry in running}
        for entry in entries:
            account, part = accounts.get(entry.slot), parts.get(entry.slot)
            yield from _by_card(self._started(entry, account, shares, on_node, part))
        for pod in self._state.pods.all():
            bound = self._state.bound(pod)
            for name, cards in bound.assignment.containers.items() if bound else ():
                if (pod.uid, name) not in started and not pod.has_ended(name):
                    yield from _by_card(self._waiting(pod, name, cards, on_node))

    def _started(
        self,
        entry: Entry,
        account: AccountSnapshot | None,
        shares: Mapping[tuple[str, int], float | None],
        on_node: Mapping[str, NodeCard],
        part: float | None,
    ) -> Iterator[SliceUse]:
        by = self._state.enforcement_of(entry)
        for row, card in enumerate(entry.cards):
            limit = self._limit(card, entry.mode, entry.share_mode)
            known = on_node.get(card.card)
            use = slice_card(account, row, limit, known.index if known else None)
            living = None
            if account is not None:
                living = [each for each in account.processes if each.alive]
                use = replace(use, memory_used=_memory_of(account, living, row))
            yield SliceUse(
                use=use,
                namespace=entry.namespace,
                pod=entry.name,
                container=entry.container,
                node=self._node,
                is_known=living is not None,
                card_allocated=None if part is None or known is None else part * _part(card, known),
                processes=None if living is None else len(living),
                level=by.level,
                time_level=by.time_level,
                enforcement=str(by),
            ).with_share_used(shares.get((entry.slot, row)))

    def _waiting(
        self,
        pod: NodePod,
        container: str,
        cards: Sequence[CardAllocation],
        on_node: Mapping[str, NodeCard],
    ) -> Iterator[SliceUse]:
        mode = self._state.mode()
        by = self._state.enforcement(mode, [card.is_mig for card in cards])
        for card in cards:
            limit, known = self._limit(card, mode), on_node.get(card.card)
            yield SliceUse(
                use=slice_card(None, 0, limit, known.index if known else None),
                card_allocated=None if known is None else _part(card, known),
                namespace=pod.metadata.namespace or "",
                pod=pod.metadata.name,
                container=container,
                node=self._node,
                level=by.level,
                time_level=by.time_level,
                enforcement=str(by),
            )

    def _limit(self, card: CardAllocation, mode: NodeMode, share_mode: Mode = "hard") -> CardLimit:
        """The enforced limit of a container on a card."""
        share = share_of(self._state.in_force(card), mode)
        return CardLimit(card.card, memory_of(card, mode), share, share_mode)


def _part(has: CardAllocation, card: NodeCard) -> float:
    """The larger one of the allocated parts of a card's memory and of its time, 0 to 1."""
    return max(has.memory_mib * _MIB / max(card.memory, 1), has.cores / _PERCENT)


def _by_card(uses: Iterable[SliceUse]) -> Iterable[SliceUse]:
    """One for each card: a container may have several MIG instances of a GPU."""
    found: dict[str, SliceUse] = {}
    for use in uses:
        before = found.get(use.use.uuid)
        found[use.use.uuid] = before.with_another(use) if before is not None else use
    return found.values()


def _memory_of(account: AccountSnapshot, living: Sequence[ProcessUse], row: int) -> int:
    """The bytes that living processes hold.

    An account keeps the entry of a dead process until another process needs its memory.
    """
    measured = account.measured_memory[row] if living else 0
    return measured + sum(each.memory[row] for each in living)


def _has_other_devices(entry: Entry) -> bool:
    """The kubelet and what reads its list then show other cards than the container's."""
    # Those of other allocators are theirs.
    return not entry.claims and {*cards_of(entry.ids)} != {card.card for card in entry.cards}
