"""The cards that our scheduler has assigned: the allocator of nodes whose owner is ``hami``.

The binding writes the assignment of a pod (``hami_py.model.pods.assignment``). Nothing here calls
the API server: it may be away for minutes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

from hami_py.agent.instances import Instances
from hami_py.agent.pods import NodePod, bound_pod, reference
from hami_py.agent.settings import AgentSettings
from hami_py.agent.state import NodeState, too_weak
from hami_py.errors import HamiError, InvalidValue
from hami_py.kube import Event
from hami_py.model import Level
from hami_py.model.pods.annotations import ASSIGNMENT
from hami_py.model.pods.request import ParsedContainer, pod_containers, read_pod
from hami_py.model.pods.wire import CardAllocation, Size
from hami_py.node import cdi
from hami_py.node.decision import Decision, Wait, decide, whole_cards
from hami_py.node.devices import DeviceRecord, cards_of
from hami_py.node.ledger import Entry
from hami_py.node.rows import priority_of
from hami_py.plugin.checkpoint import read_records
from hami_py.plugin.pod_resources import PodResources

_log = logging.getLogger(__name__)

TOO_WEAK = "delete the pod, so that its controller creates another one for another node"


class Assigned:
    """Allocates what the assignments say (``hami_py.agent.preparation.Allocator``).

    Args:
        settings: how the agent runs.
        state: what is known of the node.
        write: writes an event soon.
        instances: makes MIG instances.
    """

    def __init__(
        self,
        settings: AgentSettings,
        state: NodeState,
        write: Callable[[Event], None],
        instances: Instances,
    ) -> None:
        self.resource = settings.pods.profiles[0].gpu
        self.variables: Mapping[str, str] = cdi.NO_OTHERS
        self._settings, self._state = settings, state
        self._write, self._instances = write, instances
        self._listing = PodResources(settings.paths.pod_resources)

    def allocate(self, record: DeviceRecord, pod: NodePod) -> Entry | Wait:
        """The entry of a container that may start, in the ledger; or why it waits."""
        state = self._state
        if any(card.mig for cards in self._assigned(pod).values() for card in cards):
            # What an ended pod had may be removed only now.
            with suppress(HamiError):
                self._instances.follow()
        with state.lock:
            decision = self._decide(record, pod)
            if isinstance(decision, Wait):
                return decision
            entry = self._entry(record, pod, decision.cards)
            state.ledger.put(entry)
        return entry

    def adopted(self, record: DeviceRecord, pod: NodePod) -> Entry | None:
        """The entry of a container that runs, by its slot; None = it has none."""
        if record.slot not in self._state.slots.names():
            return None
        return self._with_instances(self._entry(record, pod, self._in_force(record, pod)))

    def cards_of_admitted(self, size: int) -> Sequence[str]:
        """The cards of the container that the kubelet admits now; empty = unknown.

        The kubelet admits one pod at a time, and its pod is the only one that has not all of its
        devices. Its containers get theirs in the order in which they start.
        """
        deadline = time.monotonic() + self._settings.preference_s
        listed = self._listing.list(self._settings.preference_s)
        records = read_records(self._settings.paths, self.resource)
        recorded = {(record.pod_uid, record.container) for record in records}
        found = []
        for names in listed:
            pod = self._state.pods.wait(names, max(0.0, deadline - time.monotonic()))
            bound = bound_pod(pod) if pod is not None else None
            if pod is None or bound is None:
                continue
            for container in pod_containers(pod):
                cards = bound.assignment.containers.get(container.name, ())
                if cards and (pod.uid, container.name) not in recorded:
                    found.append([card.card for card in cards])
                    break
        candidates = [cards for cards in found if len(cards) == size]
        if len(candidates) == 1:
            return candidates[0]
        _log.info("no preference: %d pods lack %d devices", len(candidates), size)
        return ()

    def _with_instances(self, entry: Entry) -> Entry:
        """The entry with the MIG instances that its page has in place of GPUs."""
        if not any(card.mig for card in entry.cards):
            return entry
        with suppress(HamiError, OSError):
            rows = zip(entry.cards, self._state.slots.rows(entry.slot), strict=True)
            uuids = tuple(row.uuid if card.mig is not None else "" for card, row in rows)
            return msgspec.structs.replace(entry, mig_uuids=uuids)
        return entry

    def _in_force(self, record: DeviceRecord, pod: NodePod) -> tuple[CardAllocation, ...]:
        """The amounts of a container: by its page, and where that has none, by its assignment."""
        bound = self._state.bound(pod)
        assigned = bound.assignment.containers.get(record.container, ()) if bound else ()
        try:
            rows = self._state.slots.rows(record.slot)
        except (HamiError, OSError) as error:
            _log.error("slot %s of %s: %s", record.slot, pod.title, error)
            return tuple(assigned)
        named = {card.card: card for card in assigned}
        found = []
        for row in rows:
            card = named.get(row.uuid, CardAllocation(row.uuid, 0, 0))
            mib = card.memory_mib if row.memory_limit is None else row.memory_limit >> 20
            found.append(
                CardAllocation(row.uuid, mib, card.cores if row.share is None else row.share)
            )
        # Row i is the i-th card; programs see the instance in place of the GPU.
        same = len(found) == len(assigned)
        return tuple(assigned) if same and any(card.mig for card in assigned) else tuple(found)

    def _decide(self, record: DeviceRecord, pod: NodePod) -> Decision:
        view = self._state.view()
        bound = view.pods.get(pod.uid)
        assigned = bound.assignment.containers.get(record.container, ()) if bound else ()
        by = self._state.enforcement(self._state.mode(), [card.is_mig for card in assigned])
        weak = too_weak(by, self._least_level(pod))
        if weak is not None:
            return Wait(weak, TOO_WEAK)
        if bound is not None:
            blocked = self._instances.blocked(pod.uid, assigned)
            return blocked or decide(view, pod.uid, record.container)
        if ASSIGNMENT in pod.annotations:
            return Wait("its assignment cannot be read", "see why in the log of the node agent")
        if self._settings.pods.unassigned == "whole-card":
            kinds = {each.name: each.kind for each in pod_containers(pod)}
            return whole_cards(view, pod.uid, record.container, kinds, cards_of(record.ids))
        return Wait(
            "no card was assigned to it, because it was bound without hami-py's scheduler",
            "delete the pod, so that its controller creates another one; where the webhook is "
            "turned off, with schedulerName hami-scheduler",
        )

    def _assigned(self, pod: NodePod) -> Mapping[str, Sequence[CardAllocation]]:
        bound = self._state.bound(pod)
        return bound.assignment.containers if bound is not None else {}

    def _least_level(self, pod: NodePod) -> Level:
        try:
            request = read_pod(pod, self._settings.pods).request
        except InvalidValue:
            # Reported when the container starts.
            return "none"
        return request.card_request.isolation if request is not None else "none"

    def _entry(
        self, record: DeviceRecord, pod: NodePod, cards: tuple[CardAllocation, ...]
    ) -> Entry:
        requested, gang = self._requested(pod, record.container)
        return Entry(
            record.slot,
            pod.uid,
            pod.metadata.namespace or "",
            pod.metadata.name,
            record.container,
            tuple(sorted(record.ids)),
            cards,
            _injected(requested, cards),
            record.library,
            self._state.mode(),
            priority_of(requested.priority if requested is not None else None),
            gang,
            requested.share_mode if requested is not None else "hard",
            self._least_level(pod),
        )

    def _requested(self, pod: NodePod, container: str) -> tuple[ParsedContainer | None, str | None]:
        """The request of a container, and the gang of its pod.

        The webhook has checked both, but a pod's annotations can change after that.
        """
        try:
            parsed = read_pod(pod, self._settings.pods)
        except InvalidValue as error:
            text = (
                f"container {container} starts with normal priority, hard shares and no gang, "
                f"because the pod's request cannot be read any more: {error}"
            )
            self._write(Event(reference(pod), "RequestUnreadable", text))
            return None, None
        return parsed.requesting.get(container), parsed.gang


def _injected(
    requested: ParsedContainer | None, cards: Sequence[CardAllocation]
) -> tuple[CardAllocation, ...]:
    """The limits that the webhook has put into the container's environment.

    They are those of the request. On some nodes less is limited than what was requested.
    """
    if requested is None:
        return tuple(cards)
    size = requested.request.memory
    # A percentage became the assigned amount when the pod was bound.
    mib = size.mib if isinstance(size, Size) else None
    return tuple(
        msgspec.structs.replace(
            card,
            memory_mib=card.memory_mib if mib is None else mib,
            cores=requested.request.cores,
        )
        for card in cards
    )
