"""The kubelet's questions about containers with cards, and the preparation of each container.

A container is prepared right before it starts, in ``pre_start``: only then is it known whose
devices they are. Which cards it has is the allocator's answer, once: a container that is restarted
needs neither the API server nor, but for MIG instances, NVML. Both may be away for minutes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from hami_py.agent.instances import Instances
from hami_py.agent.kernel_limits import limits_enforced
from hami_py.agent.pods import NodePod, reference
from hami_py.agent.settings import AgentSettings
from hami_py.agent.state import NodeState
from hami_py.errors import HamiError, InvalidValue
from hami_py.kube import Event
from hami_py.node.decision import KUBELET_RETRIES, Wait
from hami_py.node.devices import DeviceRecord, owners
from hami_py.node.ledger import Entry
from hami_py.plugin.allocation import answer
from hami_py.plugin.api import deviceplugin_pb2 as api
from hami_py.plugin.checkpoint import read_records
from hami_py.plugin.preference import preferred
from hami_py.plugin.service import NotYet

_log = logging.getLogger(__name__)

_STATIC = Wait("it is in a static pod, which gets no cards", "create it at the API server instead")


class Allocator(Protocol):
    """Knows the cards of containers.

    Attributes:
        resource: the extended resource of these containers.
        variables: of a container whose runtime ignores CDI devices.
    """

    resource: str
    variables: Mapping[str, str]

    def allocate(self, record: DeviceRecord, pod: NodePod) -> Entry | Wait:
        """The entry of a container that may start, in the ledger; or why it waits.

        Raises:
            HamiError: it cannot be found out now, or the ledger cannot be written.
        """

    def adopted(self, record: DeviceRecord, pod: NodePod) -> Entry | None:
        """The entry of a container that runs and that the ledger has lost; None = it has none.

        Raises:
            HamiError: it cannot be found out now.
        """

    def cards_of_admitted(self, size: int) -> Sequence[str]:
        """The cards of the container that the kubelet admits now; empty = unknown.

        Args:
            size: the number of its devices.

        Raises:
            HamiError: it cannot be found out.
        """


class Preparation:
    """Answers the kubelet (``hami_py.plugin.service.Handlers``).

    Args:
        settings: how the agent runs.
        state: what is known of the node.
        library: the installed library for new containers.
        write: writes an event soon.
        instances: makes MIG instances.
        allocator: knows the cards of containers.
    """

    def __init__(
        self,
        settings: AgentSettings,
        state: NodeState,
        library: Path,
        write: Callable[[Event], None],
        instances: Instances,
        *,
        allocator: Allocator,
    ) -> None:
        self._settings = settings
        self._state, self._instances = state, instances
        self._library, self._allocator = library, allocator
        self._waiting: set[tuple[str, str]] = set()
        # The slots of containers that have never been prepared.
        self._untold: set[str] = set()
        self._write = write

    @property
    def waiting(self) -> int:
        """The number of containers that wait at their start."""
        pods = self._state.pods
        self._waiting -= {key for key in list(self._waiting) if pods.get(key[0]) is None}
        return sum(not pods.is_over(uid) for uid, _ in list(self._waiting))

    def prefer(self, available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
        """The devices of the assigned cards, if it can be found out whose devices they will be."""
        try:
            cards = self._allocator.cards_of_admitted(size)
        except HamiError as error:
            _log.info("no preference: %s", error)
            cards = ()
        return preferred(available, required, size, cards)

    def allocate(self, ids: Sequence[str]) -> api.ContainerAllocateResponse:
        """Depends on nothing: the container is not known yet."""
        return answer(self._library, self._allocator.variables)

    def pre_start(self, ids: Sequence[str]) -> None:
        """Prepare the container that has these devices.

        Raises:
            HamiError: it cannot start yet.
        """
        records = read_records(self._settings.paths, self._allocator.resource)
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
        lost = self._lost()
        records = read_records(self._settings.paths, self._allocator.resource) if lost else ()
        found, is_whole = [], True
        for record in records:
            pod = state.pods.get(record.pod_uid)
            if pod is None or pod.is_over or record.slot in state.ledger.entries:
                continue
            try:
                entry = self._allocator.adopted(record, pod)
            except InvalidValue as error:
                # It waits, and has not run.
                _log.info("pod %s, container %s: %s", pod.title, record.container, error)
            except HamiError as error:
                _log.warning("pod %s, container %s: %s", pod.title, record.container, error)
                is_whole = False
                break
            else:
                found += [entry] if entry is not None and entry.directory in lost else []
        with state.lock:
            found = [entry for entry in found if entry.slot not in state.ledger.entries]
            state.ledger.put(*found)
            state.is_adopted = is_whole
        for entry in found:
            _log.warning("the ledger had lost %s/%s", entry.namespace, entry.name)

    def _lost(self) -> set[str]:
        """The slots that no entry has."""
        state = self._state
        with state.lock:
            return state.slots.names() - {e.directory for e in state.ledger.entries.values()}

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
        waits = f"{pod.title} container {record.container}"
        entry = self._allocator.allocate(record, pod) if pod.uid == uid else _STATIC
        if isinstance(entry, Wait):
            raise NotYet(waits, entry.reason, entry.fix)
        self._untold.add(record.slot)
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
        is_told = slot not in self._untold or not entry.cards
        if not is_told and pod is not None and by.level != "kernel":
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
