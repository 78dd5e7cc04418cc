"""A cluster at one moment, for the questions "why?" and "what if?".

The production allocator answers them on a copy of the state, which is read from an API server or
from a snapshot. Nothing is written anywhere. The same snapshot gives the same answers, so a
cluster's decisions can be reproduced elsewhere. The state does not include the cards that a running
extender holds in memory for pods between scoring and binding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import msgspec

from hami_py._native import Allocator
from hami_py.cluster.explanation import (
    AllocatedNamespace,
    AllocatedNode,
    CardView,
    LeftOut,
    NodeView,
    Outcome,
    Refusals,
)
from hami_py.cluster.nodes import Duplicates
from hami_py.cluster.state import NODES, PODS, QUOTAS, Cluster
from hami_py.cluster.waiting import check_room
from hami_py.errors import InvalidValue
from hami_py.kube import ApiServer, Sink, Undecoded, list_objects, path_of
from hami_py.kube.errors import NotFound
from hami_py.model import legible, pods
from hami_py.model.pods import objects, wire
from hami_py.node.levels import NOTHING_STRONGER, Enforcement, enforcement

T = TypeVar("T")


@dataclass(frozen=True)
class Listed(Generic[T]):
    """The objects of one kind, and those that could not be decoded."""

    objects: list[T]
    undecoded: Sequence[Undecoded] = ()


@dataclass(frozen=True)
class DaemonPod:
    """A pod that is created once for each node, as by a DaemonSet."""

    pod: objects.Pod


class ClusterView:
    """A cluster at one moment.

    Args:
        nodes: the nodes whose cordons, taints and labels count (``pods.exclusion_reasons``). Of
            other nodes only the cards count.
        blocked: by node, why it gets no new pod whatever its cards have free.
    """

    def __init__(
        self,
        allocator: Allocator,
        settings: pods.PodSettings | None = None,
        nodes: Iterable[objects.Node] = (),
        *,
        blocked: Mapping[str, str] | None = None,
        left_out: Sequence[LeftOut] = (),
    ) -> None:
        self._allocator = allocator
        self._settings = settings or pods.PodSettings()
        self._nodes = {node.name: node for node in nodes}
        self.blocked = dict(blocked or {})
        self.left_out = tuple(left_out)

    @classmethod
    def read(
        cls,
        server: ApiServer,
        settings: pods.PodSettings | None = None,
        *,
        deadline_s: float = 300.0,
    ) -> ClusterView:
        """Reads the cluster from an API server.

        Objects that are invalid or cannot be decoded are no error. They count as they do in a
        scheduler that has just started, and they appear in ``left_out``, in the log, and as reasons
        of the nodes that get no new pod because of them. Each list may take ``deadline_s``: one of
        100,000 pods has 200 pages.

        Raises:
            KubeError: nodes, quotas or pods cannot be listed; ``Forbidden``: a right is missing.
        """

        def listed(path: str, kind: type[T]) -> Listed[T]:
            return Listed(*list_objects(server, path, kind, deadline_s=deadline_s))

        return cls.of(
            listed(NODES, objects.Node),
            listed(QUOTAS, objects.ResourceQuota),
            listed(PODS, objects.Pod),
            settings,
        )

    @classmethod
    def of(
        cls,
        nodes: Listed[objects.Node],
        quotas: Listed[objects.ResourceQuota],
        all_pods: Listed[objects.Pod],
        settings: pods.PodSettings | None = None,
    ) -> ClusterView:
        """The cluster with these objects; see ``read``."""
        cluster = Cluster(Allocator(), settings or pods.PodSettings())
        left_out: list[LeftOut] = []

        def taken(kind: str, listed: Listed[T], sink: Sink[T]) -> list[T]:
            sink.replace(listed.objects, listed.undecoded)
            left_out.extend(LeftOut(kind, item.name, item.why) for item in listed.undecoded)
            return listed.objects

        there = taken("node", nodes, cluster.nodes)
        taken("resourcequota", quotas, cluster.quotas)
        taken("pod", all_pods, cluster.pods)
        # A pod may outlive its node.
        names = {node.name for node in there} | {i.name for i in left_out if i.kind == "node"}
        blocked = {name: why for name, why in cluster.nodes.blocked().items() if name in names}
        return cls(cluster.allocator, cluster.settings, there, blocked=blocked, left_out=left_out)

    @classmethod
    def restore(cls, snapshot: bytes, settings: pods.PodSettings | None = None) -> ClusterView:
        """Reads the cluster from a snapshot: only cards, without cordons, taints and labels.

        Raises:
            InvalidValue: the bytes are not a snapshot, or one of another version.
        """
        return cls(Allocator.restore(snapshot), settings)

    def snapshot(self) -> bytes:
        """The allocator's state as JSON. It has no images, environment variables or secrets."""
        return self._allocator.snapshot()

    def digest(self) -> str:
        """A digest of the state: equal for equal states."""
        return self._allocator.digest()

    def usage(self) -> list[AllocatedNode]:
        """The allocated resources by node; a removed node that still has pods is included."""
        return msgspec.json.decode(self._allocator.usage(), type=list[AllocatedNode])

    def enforcement(self, node: str, mig: Iterable[bool] = ()) -> Enforcement | None:
        """How strongly the limits of new containers are enforced on a node.

        Args:
            node: its name.
            mig: of each card of a container, whether it is a MIG instance; none = no card is.

        Returns:
            None: the node has no cards.
        """
        found = next((each for each in self.usage() if each.present and each.name == node), None)
        if found is None:
            return None
        is_kernel = any(card.level == "kernel" for card in found.cards)
        no_kernel = None if is_kernel else NOTHING_STRONGER
        return enforcement(found.mode, self._settings.core_policy, no_kernel, mig=mig)

    def namespaces(self) -> list[AllocatedNamespace]:
        """The resources of each namespace that has pods or quotas, by name."""
        return msgspec.json.decode(self._allocator.namespaces(), type=list[AllocatedNamespace])

    def refusals(self, pod: objects.Pod) -> Refusals:
        """Why nodes do not fit a pod that waits.

        A node has one of the reasons that ``explain`` shows. The text has nothing of the node, so
        that many nodes have the same.

        Raises:
            InvalidValue: as of ``explain``.
        """
        encoded = wire.encode(self._request(pod))
        fits, full, unresolvable = self._allocator.filter(encoded, None, 0)
        found = Refusals()
        for name, why in {
            **dict.fromkeys(fits, ""),
            **full,
            **unresolvable,
            **self.blocked,
        }.items():
            node = self._nodes.get(name)
            excluded = pods.exclusions(pod, node) if node is not None else ()
            selected = [each for each in excluded if each.is_selection]
            if selected:
                found.unselected[selected[0].brief] += 1
            elif excluded:
                found.closed[excluded[0].brief] += 1
            elif why:
                found.of_cards[why] += 1
            else:
                found.fits += 1
        return found

    def explain(self, pod: objects.Pod) -> list[NodeView]:
        """Judges each node with cards for a pod, best node first.

        A pod that has its cards already is judged as if it had none. Nodes whose cards are not
        known are included, with the reason and without cards. Nodes that have no cards are not
        (see ``without_cards``).

        Raises:
            InvalidValue: the pod requests no card, or its request is invalid; its annotations leave
                no room for ours; or it has no UID because it was not created yet (use ``what_if``).
        """
        request = self._request(pod)
        state = self._allocator.snapshot()
        other = Allocator.restore(state)
        other.remove(request.pod.uid)
        encoded = wire.encode(request)
        if pods.annotations.ASSIGNMENT in pod.annotations:
            # The binding has set its node's name; the pod did not request that node.
            spec = msgspec.structs.replace(pod.spec, node_name=None)
            pod = msgspec.structs.replace(pod, spec=spec)
        fits, full, unresolvable = other.filter(encoded, None, 0)
        views = [
            msgspec.json.decode(other.explain(encoded, node), type=NodeView)
            for node in [*fits, *full, *unresolvable]
        ]
        views += [
            NodeView(node, fits=False, reason=why, unresolvable=True)
            for node, why in self.blocked.items()
        ]
        duplicates = _duplicates(state)
        views = [self._kept_away(pod, _compared(view, duplicates)) for view in views]
        return sorted(views, key=lambda view: (-(view.score or 0), not view.fits, view.node))

    def without_cards(self) -> tuple[str, ...]:
        """The nodes that report no cards, sorted."""
        described = {node.name for node in _described(self._allocator.snapshot())}
        return tuple(sorted(self._nodes.keys() - described - self.blocked.keys()))

    def what_if(self, wanted: Sequence[objects.Pod | DaemonPod]) -> list[Outcome]:
        """Where pods would be placed if they were created now, one after the other.

        Each pod that is placed uses room that the next ones then lack; this view itself does not
        change. An invalid pod is not an error but an outcome with a reason. A ``DaemonPod`` has one
        outcome for each node with cards that its pod may run on.
        """
        other = Allocator.restore(self._allocator.snapshot())
        single: list[tuple[objects.Pod, str | None]] = []
        for each in wanted:
            if isinstance(each, DaemonPod):
                single += [(each.pod, node) for node in self._nodes_for(each.pod)]
            else:
                single.append((each, None))
        return [self._outcome(other, pod, number, on) for number, (pod, on) in enumerate(single)]

    def _nodes_for(self, pod: objects.Pod) -> Sequence[str | None]:
        """The nodes with cards that only their cards may exclude; if there is none, ``None``."""
        described = {node.name for node in _described(self._allocator.snapshot())}
        names = sorted(described | self.blocked.keys())
        return [name for name in names if not self._why(pod, name)] or [None]

    def _outcome(
        self, allocator: Allocator, pod: objects.Pod, number: int, on: str | None
    ) -> Outcome:
        outcome = self._place(allocator, pod, number, on)
        warnings = tuple(map(str, pods.admit(pod, self._settings).warnings))
        return replace(outcome, warnings=warnings)

    def _place(
        self, allocator: Allocator, pod: objects.Pod, number: int, on: str | None
    ) -> Outcome:
        """Where one pod would be placed; ``on``: the only node for it."""
        metadata = msgspec.structs.replace(
            pod.metadata, uid=f"what-if-{number}", namespace=pod.metadata.namespace or "default"
        )
        pod = msgspec.structs.replace(pod, metadata=metadata)
        name = f"{metadata.namespace}/{metadata.name or metadata.generate_name or number}"
        try:
            encoded = wire.encode(self._request(pod))
        except InvalidValue as error:
            return Outcome(name, reasons={"": str(error)})
        # The webhook would have refused it.
        if refusals := pods.admit(pod, self._settings).refusals:
            return Outcome(name, reasons={"": "; ".join(map(str, refusals))})
        fits, full, unresolvable = allocator.filter(encoded, None if on is None else [on], 0)
        whys = {node: self._why(pod, node) for node in [*fits, *full, *unresolvable]}
        for node, reason in {**full, **unresolvable}.items():
            whys[node].append(reason)
        for node, reason in self.blocked.items():
            if on in (None, node):
                whys[node] = [*self._why(pod, node), reason]
        reasons = {node: "; ".join(why) for node, why in whys.items() if why}
        left = [node for node in fits if node not in reasons]
        if not left:
            return Outcome(name, reasons=reasons)
        scores = allocator.score(encoded, left, 0, 0)
        best = min(scores, key=lambda scored: (-scored[1], scored[0]))[0]
        assignment = msgspec.json.decode(allocator.reserve(encoded, best, 0), type=wire.Assignment)
        return Outcome(name, best, assignment, reasons)

    def _kept_away(self, pod: objects.Pod, view: NodeView) -> NodeView:
        if not (why := self._why(pod, view.node)):
            return view
        reason = "; ".join([*why, view.reason] if view.reason else why)
        return msgspec.structs.replace(
            view, fits=False, reason=reason, unresolvable=True, assignment=None, score=None
        )

    def _why(self, pod: objects.Pod, name: str) -> list[str]:
        node = self._nodes.get(name)
        return list(pods.exclusion_reasons(pod, node)) if node is not None else []

    def _request(self, pod: objects.Pod) -> wire.PodRequest:
        request = pods.read_request(pod, self._settings)
        if request is None:
            raise InvalidValue(
                f"pod {legible(pod.metadata.name)}",
                "",
                f"it requests no card; set {self._settings.profiles[0].gpu} in "
                "resources.limits of a container",
            )
        if pods.annotations.ASSIGNMENT not in pod.annotations:
            check_room(pod, request)
        return request


class _Cards(msgspec.Struct, frozen=True):
    """The nodes of a snapshot."""

    nodes: tuple[wire.Node, ...]


def _duplicates(snapshot: bytes) -> Duplicates:
    found = Duplicates()
    for node in _described(snapshot):
        found.set(node.name, (card.uuid for card in node.cards))
    return found


def _described(snapshot: bytes) -> tuple[wire.Node, ...]:
    return msgspec.json.decode(snapshot, type=_Cards).nodes


def _compared(view: NodeView, duplicates: Duplicates) -> NodeView:
    def compared(card: CardView) -> CardView:
        others = duplicates.others(card.uuid, view.node)
        return msgspec.structs.replace(card, also_on=others) if others else card

    return msgspec.structs.replace(view, cards=tuple(map(compared, view.cards)))


def find_pod(server: ApiServer, namespace: str, name: str, *, deadline_s: float) -> objects.Pod:
    """Reads a pod by its name.

    Raises:
        NotFound: there is no such pod.
        KubeError: the API server did not answer; ``Forbidden``: the right is missing.
        InvalidValue: the pod cannot be decoded.
    """
    try:
        data = server.get(path_of(namespace, "pods", name), deadline_s=deadline_s)
    except NotFound as error:
        raise NotFound(
            f"pod {namespace}/{name}",
            "there is no such pod",
            "choose one from `kubectl get pods --all-namespaces`",
            error.status,
        ) from error
    return pods.decode_pod(data)
