"""The kubelet's questions about containers with cards, and the preparation of each container.

A container is prepared right before it starts, in ``pre_start``: only then is it known whose
devices they are. Nothing here calls the API server, or NVML but for MIG instances: both may be away
for minutes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from hami_py.agent.instances import Instances
from hami_py.agent.kernel_limits import limits_enforced
from hami_py.agent.pods import NodePod, bound_pod, reference
from hami_py.agent.settings import AgentSettings
from hami_py.agent.state import NodeState, too_weak
from hami_py.errors import HamiError, InvalidValue
from hami_py.kube import Event
from hami_py.model import Level
from hami_py.model.pods.annotations import ASSIGNMENT
from hami_py.model.pods.request import ParsedContainer, pod_containers, read_pod
from hami_py.model.pods.wire import CardAllocation, Size
from hami_py.node.decision import KUBELET_RETRIES, Decision, Run, Wait, decide, whole_cards
from hami_py.node.devices import DeviceRecord, cards_of, owners
from hami_py.node.ledger import Entry
from hami_py.node.rows import priority_of
from hami_py.plugin.allocation import answer
from hami_py.plugin.api import deviceplugin_pb2 as api
from hami_py.plugin.checkpoint import read_records
from hami_py.plugin.pod_resources import PodResources
from hami_py.plugin.preference import preferred
from hami_py.plugin.service import NotYet

_log = logging.getLogger(__name__)

_STATIC = Wait("it is in a static pod, which gets no cards", "create it at the API server instead")


class Preparation:
    """Answers the kubelet (``hami_py.plugin.service.Handlers``).

    Args:
        settings: how the agent runs.
        state: what is known of the node.
        library: the installed library for new containers.
        write: writes an event soon.
        instances: makes MIG instances.
    """

    def __init__(
        self,
        settings: AgentSettings,
        state: NodeState,
        library: Path,
        write: Callable[[Event], None],
        instances: Instances,
    ) -> None:
        self._settings = settings
        self._state, self._instances = state, instances
        self._library = library
        self._waiting: set[tuple[str, str]] = set()
        # The slots of containers that have never been prepared.
        self._untold: set[str] = set()
        self._write = write
        self._resource = settings.pods.profiles[0].gpu
        self._listing = PodResources(settings.paths.pod_resources)

    @property
    def waiting(self) -> int:
        """The number of containers that wait at their start."""
        pods = self._state.pods
        self._waiting -= {key for key in list(self._waiting) if pods.get(key[0]) is None}
        return sum(not pods.is_over(uid) for uid, _ in list(self._waiting))

    def prefer(self, available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
        """The devices of the assigned cards, if it can be found out whose devices they will be."""
        try:
            cards = self._cards_of_admitted(size)
        except HamiError as error:
            _log.info("no preference: %s", error)
            cards = ()
        return preferred(available, required, size, cards)

    def allocate(self, ids: Sequence[str]) -> api.ContainerAllocateResponse:
        """Depends on nothing: the container is not known yet."""
        return answer(self._library)

    def pre_start(self, ids: Sequence[str]) -> None:
        """Prepare the container that has these devices.

        Raises:
            HamiError: it cannot start yet.
        """
        records = read_records(self._settings.paths, self._resource)
        found = owners(records, ids, self._state.pods.is_over)
        if not found:
            why = f"the kubelet has not recorded whose devices {', '.join(sorted(ids))} are"
            raise NotYet("the container waits", why, KUBELET_RETRIES)
        errors: list[HamiError] = []
        for record in found:
            try:
                self._prepare(record)
            except HamiError as error:
                # The one that starts may be another one. Without a device, this one cannot start.
                self._tell(record, error)
                errors.append(error)
            else:
                self._waiting.discard((record.pod_uid, record.container))
        if len(errors) == len(found):
            raise errors[0]

    def adopt(self) -> None:
        """Put containers that run into the ledger, if it has lost them.

        Their slots are there, and the kubelet's record says whose they are.

        Raises:
            StateError: the record cannot be read, or the ledger cannot be written.
        """
        state = self._state
        if not state.pods.is_listed:
            return
        with state.lock:
            lost = state.slots.names() - state.ledger.entries.keys()
            records = read_records(self._settings.paths, self._resource) if lost else ()
            found = [
                self._with_instances(self._entry(record, pod, self._in_force(record, pod)))
                for record in records
                if record.slot in lost
                and (pod := state.pods.get(record.pod_uid)) is not None
                and not pod.is_over
            ]
            state.ledger.put(*found)
            state.is_adopted = True
        for entry in found:
            _log.warning("the ledger had lost %s/%s", entry.namespace, entry.name)

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

    def _cards_of_admitted(self, size: int) -> Sequence[str]:
        """The cards of the container that the kubelet admits now; empty = unknown.

        The kubelet admits one pod at a time, and its pod is the only one that has not all of its
        devices. Its containers get theirs in the order in which they start.
        """
        deadline = time.monotonic() + self._settings.preference_s
        listed = self._listing.list(self._settings.preference_s)
        records = read_records(self._settings.paths, self._resource)
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

    def _prepare(self, record: DeviceRecord) -> None:
        """Prepare the container of a record: its entry in the ledger, its slot, its devices."""
        state = self._state
        if record.slot in state.ledger.entries:
            self._make(record.slot, state.pods.get(record.pod_uid))
            return
        uid = record.pod_uid
        pod = state.pods.wait(uid, self._settings.assignment_s) or state.pods.mirror(uid)
        if pod is None:
            why = "the API server has not reported it to the node agent"
            raise NotYet(f"pod {uid}", why, KUBELET_RETRIES)
        if any(card.mig for cards in self._assigned(pod).values() for card in cards):
            # What an ended pod had may be removed only now.
            with suppress(HamiError):
                self._instances.follow()
        with state.lock:
            decision = self._decide(record, pod) if pod.uid == uid else _STATIC
            if isinstance(decision, Run):
                # First the ledger: a slot without an entry would be removed.
                state.ledger.put(self._entry(record, pod, decision.cards))
                self._untold.add(record.slot)
        if isinstance(decision, Wait):
            raise NotYet(f"{pod.title} container {record.container}", decision.reason, decision.fix)
        self._make(record.slot, pod)

    def _make(self, slot: str, pod: NodePod | None) -> None:
        """Make what the container of an entry needs: its instances, its slot, its devices."""
        self._instances.ensure(slot)
        with self._state.lock:
            entry = self._state.ledger.entries.get(slot)
            if entry is None:
                raise NotYet("the container waits", "its pod has ended", KUBELET_RETRIES)
            # The cgroup is that of the container before this one.
            entry = msgspec.structs.replace(entry, cgroup=None)
            self._state.ledger.put(entry)
            self._state.prepare(entry)
        by = self._state.enforcement(entry.mode, entry.mig)
        # Whether the driver limits it is known when its first process exists.
        if slot in self._untold and pod is not None and by.level != "kernel":
            self._write(limits_enforced(self._state, entry, pod))
        self._untold.discard(slot)

    def _tell(self, record: DeviceRecord, error: HamiError) -> None:
        """Tell why a container waits. Without the pod's name there can be no event."""
        pods = self._state.pods
        pod = pods.get(record.pod_uid) or pods.mirror(record.pod_uid)
        if pod is not None:
            self._waiting.add((pod.uid, record.container))
            why = error.why if isinstance(error, NotYet) else f"{error.what}: {error.why}"
            message = f"container {record.container} waits: {why}; {error.fix}"
            topic = f"container {record.container}; {error.fix}"
            self._write(Event(reference(pod), "WaitingForCard", message, topic=topic))

    def _decide(self, record: DeviceRecord, pod: NodePod) -> Decision:
        view = self._state.view()
        bound = view.pods.get(pod.uid)
        assigned = bound.assignment.containers.get(record.container, ()) if bound else ()
        by = self._state.enforcement(self._state.mode(), [card.is_mig for card in assigned])
        weak = too_weak(by, self._least_level(pod))
        if weak is not None:
            fix = "delete the pod, so that its controller creates another one for another node"
            return Wait(weak, fix)
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
