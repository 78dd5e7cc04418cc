"""The cards that others have allocated: the allocator of nodes whose owner is ``others``.

A container's amounts are in the objects of its allocator (``hami_py.node.amounts``). They are read
when it starts for the first time, and are in the ledger then. Its devices are those that the
allocator gives it; ours add the limits.

Containers with the same amounts, such as two pods with one claim, have one slot: what they use is
counted together. The other allocator decides the sum on a card, so it is not checked here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from hami_py.agent.assigned import TOO_WEAK
from hami_py.agent.pods import NodePod
from hami_py.agent.settings import AgentSettings
from hami_py.agent.state import NodeState, too_weak
from hami_py.errors import InvalidValue
from hami_py.kube import ApiServer, list_objects
from hami_py.kube.lists import decoded
from hami_py.model.cards import is_mig
from hami_py.model.pods import owner
from hami_py.model.pods.card_request import read_card_request
from hami_py.model.pods.claims import Amounts, ResourceClaim, ResourceSlice, references
from hami_py.model.pods.objects import Container
from hami_py.model.pods.request import pod_containers
from hami_py.model.pods.share_mode import read_share_mode
from hami_py.model.pods.wire import CardAllocation
from hami_py.node.amounts import Known, amounts_of
from hami_py.node.decision import Wait
from hami_py.node.devices import DeviceRecord
from hami_py.node.ledger import Entry
from hami_py.plugin.checkpoint import read_devices

_API = "/apis/resource.k8s.io/v1"

_DEADLINE_S = 5.0
"""For each request. The kubelet waits 30 s for the answer."""


class Others:
    """Allocates what others have (``hami_py.agent.preparation.Allocator``).

    Args:
        api: the API server.
        settings: how the agent runs.
        state: what is known of the node.
    """

    resource = owner.LIMITS
    variables: Mapping[str, str] = {}

    def __init__(self, api: ApiServer, settings: AgentSettings, state: NodeState) -> None:
        self._api, self._settings, self._state = api, settings, state

    def cards_of_admitted(self, size: int) -> Sequence[str]:
        """None: the devices of ``hami.io/limits`` are no cards."""
        return ()

    def allocate(self, record: DeviceRecord, pod: NodePod) -> Entry | Wait:
        """The entry of a container that may start, in the ledger; or why it waits.

        Raises:
            InvalidValue: its amounts are not known yet, or wrong.
            KubeError: they cannot be read now.
            StateError: the kubelet's record cannot be read, or the ledger cannot be written.
        """
        entry = self._entry(record, pod)
        by = self._state.enforcement(entry.mode, entry.mig)
        weak = too_weak(by, entry.isolation) if entry.cards else None
        if weak is not None:
            return Wait(weak, TOO_WEAK)
        with self._state.lock:
            others = [each for each in self._state.ledger.entries.values() if each.claims]
            others = [each for each in others if not self._state.has_ended(each)]
            blocked = _blocked(entry, pod, others)
            if blocked is not None:
                return blocked
            for other in others:
                if other.directory == entry.directory:
                    # The page is one, and that of a running container does not change.
                    same = {"mode": other.mode, "share_mode": other.share_mode}
                    entry = replace(entry, cards=other.cards, injected=other.cards, **same)
            self._state.ledger.put(entry)
        return entry

    def adopted(self, record: DeviceRecord, pod: NodePod) -> Entry | None:
        """The entry of a container that runs; its amounts do not change."""
        return self._entry(record, pod)

    def _entry(self, record: DeviceRecord, pod: NodePod) -> Entry:
        container = next(each for each in pod_containers(pod) if each.name == record.container)
        amounts = self._amounts(container.spec, pod)
        parts = sorted(amounts.parts, key=lambda part: part.card) if amounts else ()
        known = {card.uuid: card.memory_mib for card in self._state.cards.all}
        for part in parts:
            field = f"container {container.name}: card"
            if part.card not in known:
                fix = "the agent of this node does not see it: look into its log"
                raise InvalidValue(field, part.card, fix)
            if is_mig(part.card) and (part.memory_mib is not None or part.cores):
                fix = "a part of a MIG device is not limited: share whole MIG devices, or none"
                raise InvalidValue(field, part.card, fix)
        cards = tuple(
            CardAllocation(
                part.card,
                known[part.card] if part.memory_mib is None else part.memory_mib,
                part.cores,
            )
            for part in parts
        )
        settings = self._settings.pods
        return Entry(
            record.slot,
            pod.uid,
            pod.metadata.namespace or "",
            pod.metadata.name,
            record.container,
            (),
            cards,
            cards,
            record.library,
            self._state.mode(),
            "normal",
            share_mode=read_share_mode(container.spec, pod, settings),
            isolation=read_card_request(pod, settings).isolation,
            claims=tuple(sorted(amounts.owner)) if amounts else (),
        )

    def _amounts(self, container: Container, pod: NodePod) -> Amounts | None:
        """The amounts of a container; None = it has no card."""
        used = references(pod, container)
        kubelet = read_devices(self._settings.paths)
        claims = {each.claim: self._claim(pod, each.claim) for each in used}
        found = amounts_of(
            Known(
                pod=pod,
                container=container,
                cards={card.uuid: card.memory_mib for card in self._state.cards.all},
                devices=kubelet.of(pod.uid, container.name),
                registered=kubelet.registered,
                pods=self._state.pods.all(),
                claims=claims,
                slices=self._slices() if claims else (),
            )
        )
        if found is None and owner.has_cards(pod, container):
            fix = "see the events of the pod: its allocator has not said which cards it has"
            raise InvalidValue(f"container {container.name}", "cards without an amount", fix)
        return found

    def _claim(self, pod: NodePod, name: str) -> ResourceClaim:
        path = f"{_API}/namespaces/{pod.metadata.namespace}/resourceclaims/{name}"
        return decoded(self._api.get(path, deadline_s=_DEADLINE_S), ResourceClaim)

    def _slices(self) -> Sequence[ResourceSlice]:
        of_node = {"fieldSelector": f"spec.nodeName={self._settings.node}"}
        found, _ = list_objects(
            *(self._api, f"{_API}/resourceslices", ResourceSlice),
            query=of_node,
            deadline_s=_DEADLINE_S,
        )
        return found


def _blocked(entry: Entry, pod: NodePod, others: Iterable[Entry]) -> Wait | None:
    """Why a container waits that shares a part of what another one has, and not all of it.

    Their amounts could not be counted together, nor apart.
    """
    mine = {*entry.claims}
    for other in others:
        if mine.isdisjoint(other.claims) or mine == {*other.claims}:
            continue
        if other.owner != entry.owner or not _run_apart(pod, {entry.container, other.container}):
            name = f"container {other.container} of {other.namespace}/{other.name}"
            why = f"{name} uses only a part of the same claims, or more of them"
            return Wait(why, "let both use the same requests, or different ones")
    return None


def _run_apart(pod: NodePod, names: Collection[str]) -> bool:
    """Whether two containers of a pod never run at one time: an init container ends first."""
    first = next((each for each in pod_containers(pod) if each.name in names), None)
    return first is not None and first.kind == "init"
