"""A cluster at one moment, to be asked: why, and what if.

The answers are the production engine's, on a copy of the state: read from an API server, or from a
snapshot that somebody else took. Nothing is written anywhere, and a snapshot asked the same gives
the same answers, so what happened in a cluster can be looked at on a desk. What a running extender
holds in memory for pods on their way is not in it.

A score is told on three scales: the allocator's is 0 to 10,000; ``NodeView.score`` is that in
hundreds, 0 to 100; and kube-scheduler is told 0 to 10, where 10 is the one best node and 0 to 9 is
where the others lie between the lowest and the highest score of those that it asked about.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from hami_py._native import Allocator
from hami_py.errors import InvalidValue
from hami_py.kube import ApiServer, list_objects
from hami_py.kube.errors import NotFound
from hami_py.model import legible, pods
from hami_py.model.pods import objects, wire
from hami_py.scheduler.cluster import NODES, PODS, QUOTAS, Cluster
from hami_py.scheduler.duplicates import Duplicates

__all__ = ["CardView", "ClusterView", "ContainerView", "NodeView", "Outcome", "find_pod"]


class ContainerView(msgspec.Struct, frozen=True):
    """One container on one card.

    Attributes:
        container: its name.
        fits: whether the card has room for it.
        code: a word for programs, if not (``CardReason::code`` in native/allocator/src/reason.rs).
        reason: a few words for people, if not, with figures in MiB and percent.
    """

    container: str
    fits: bool
    code: str | None = None
    reason: str | None = None


class CardView(msgspec.Struct, frozen=True):
    """One card, as it is for one pod.

    Attributes:
        uuid: the driver's name for it.
        index: NVML's number.
        model: as NVML writes it.
        free_mib: MiB that nobody was given, less what programs that are not ours use.
        free_cores: percent of its time that nobody was given.
        free_slots: containers that it may have yet.
        containers: how it suits the pod's containers.
        also_on: other nodes that say they have this very card; its room counts on each.
    """

    uuid: str
    index: int
    model: str
    free_mib: int
    free_cores: int
    free_slots: int
    containers: tuple[ContainerView, ...] = ()
    also_on: tuple[str, ...] = ()


class NodeView(msgspec.Struct, frozen=True):
    """One node, as it is for one pod.

    Attributes:
        node: its name.
        fits: whether the pod fits: there are cards for it, and nothing keeps it from the node.
        reason: why not, in one line with figures.
        unresolvable: it would not fit if the node were empty either.
        cards: each of its cards.
        assignment: what the pod would be given; ``None`` where it does not fit.
        score: 0 to 100, how good the node would be with the pod on it; ``None`` where it does not
            fit. The scales stand above.
    """

    node: str
    fits: bool
    reason: str | None = None
    unresolvable: bool = False
    cards: tuple[CardView, ...] = ()
    assignment: wire.Assignment | None = None
    score: int | None = None


@dataclass(frozen=True)
class Outcome:
    """What would become of one pod.

    Attributes:
        pod: ``namespace/name``.
        node: where it would go; ``None``: nowhere.
        assignment: the cards that it would get; ``None``: none.
        reasons: why not, by the name of the node, of those where it does not fit. Under the name
            ``""`` stands what is about the pod itself: it cannot be read, or the webhook would
            refuse it; then there is no other.
    """

    pod: str
    node: str | None = None
    assignment: wire.Assignment | None = None
    reasons: dict[str, str] = field(default_factory=dict)


class ClusterView:
    """A cluster at one moment.

    Args:
        allocator: cards, quotas, and who has what.
        settings: how pods are read.
        nodes: what is to be asked whether it lets a pod in (``pods.kept_away``); of a node that is
            not among them, cards alone count.
    """

    def __init__(
        self,
        allocator: Allocator,
        settings: pods.PodSettings | None = None,
        nodes: Iterable[objects.Node] = (),
    ) -> None:
        self._allocator = allocator
        self._settings = settings or pods.PodSettings()
        self._nodes = {node.name: node for node in nodes}

    @classmethod
    def read(
        cls,
        server: ApiServer,
        settings: pods.PodSettings | None = None,
        *,
        deadline_s: float = 60.0,
    ) -> ClusterView:
        """The cluster as an API server tells it now.

        Args:
            server: which.
            settings: how pods are read; HAMi's defaults if left out, whatever the cluster's
                webhook is told.
            deadline_s: seconds that each page of each list may take: 500 objects.

        Raises:
            KubeError: nodes, quotas or pods cannot be listed; ``Forbidden``: a right is missing.
            InvalidValue: an object is not as Kubernetes' own fields should be. One with annotations
                that cannot be read is logged and left out, as the scheduler does it.
        """
        cluster = Cluster(Allocator(), settings or pods.PodSettings())
        nodes = list_objects(server, NODES, objects.Node, deadline_s=deadline_s)
        cluster.nodes.replace(nodes)
        cluster.quotas.replace(
            list_objects(server, QUOTAS, objects.ResourceQuota, deadline_s=deadline_s)
        )
        cluster.pods.replace(list_objects(server, PODS, objects.Pod, deadline_s=deadline_s))
        return cls(cluster.allocator, cluster.settings, nodes)

    @classmethod
    def restore(cls, snapshot: bytes, settings: pods.PodSettings | None = None) -> ClusterView:
        """The cluster as a snapshot tells it: cards alone, no taints, cordons and labels of nodes.

        Raises:
            InvalidValue: it is no snapshot, or of another version.
        """
        return cls(Allocator.restore(snapshot), settings)

    def snapshot(self) -> bytes:
        """All that the engine knows, as JSON: nobody's images, variables or secrets are in it."""
        return self._allocator.snapshot()

    def digest(self) -> str:
        """Equal for equal states."""
        return self._allocator.digest()

    def explain(self, pod: objects.Pod) -> list[NodeView]:
        """How each node with cards is for a pod, best first.

        A pod that has its cards is looked at as if it had not. Nodes that have no cards, or whose
        cards cannot be read, are not among them.

        Raises:
            InvalidValue: it asks for no card, or for what makes no sense; or it has no UID, because
                it was not made yet: ``what_if`` is for those.
        """
        request = self._request(pod)
        state = self._allocator.snapshot()
        other = Allocator.restore(state)
        other.remove(request.pod.uid)
        asked = wire.encode(request)
        if pods.annotations.ASSIGNMENT in pod.annotations:
            # Its node's name is the binding's, and no wish.
            spec = msgspec.structs.replace(pod.spec, node_name=None)
            pod = msgspec.structs.replace(pod, spec=spec)
        fits, full, never = other.filter(asked, None, 0)
        views = [
            msgspec.json.decode(other.explain(asked, node), type=NodeView)
            for node in [*fits, *full, *never]
        ]
        duplicates = _duplicates(state)
        views = [self._kept_away(pod, _compared(view, duplicates)) for view in views]
        return sorted(views, key=lambda view: (-(view.score or 0), not view.fits, view.node))

    def what_if(self, wanted: Sequence[objects.Pod]) -> list[Outcome]:
        """Where pods would go, if they were made now one after the other.

        Each counts for those after it, and for nobody else: this view stays as it is. A pod that
        cannot be read is no error, but an outcome with a reason.
        """
        other = Allocator.restore(self._allocator.snapshot())
        return [self._place(other, pod, number) for number, pod in enumerate(wanted)]

    def _place(self, allocator: Allocator, pod: objects.Pod, number: int) -> Outcome:
        metadata = msgspec.structs.replace(
            pod.metadata, uid=f"what-if-{number}", namespace=pod.metadata.namespace or "default"
        )
        pod = msgspec.structs.replace(pod, metadata=metadata)
        name = f"{metadata.namespace}/{metadata.name or metadata.generate_name or number}"
        try:
            asked = wire.encode(self._request(pod))
        except InvalidValue as error:
            return Outcome(name, reasons={"": str(error)})
        # The webhook would have turned it away.
        if refusals := pods.admit(pod, self._settings).refusals:
            return Outcome(name, reasons={"": "; ".join(map(str, refusals))})
        fits, full, never = allocator.filter(asked, None, 0)
        whys = {node: self._why(pod, node) for node in [*fits, *full, *never]}
        for node, reason in {**full, **never}.items():
            whys[node].append(reason)
        reasons = {node: "; ".join(why) for node, why in whys.items() if why}
        left = [node for node in fits if node not in reasons]
        if not left:
            return Outcome(name, reasons=reasons)
        scores = allocator.score(asked, left, 0, 0)
        best = min(scores, key=lambda scored: (-scored[1], scored[0]))[0]
        assignment = msgspec.json.decode(allocator.reserve(asked, best, 0), type=wire.Assignment)
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
        return list(pods.kept_away(pod, node)) if node is not None else []

    def _request(self, pod: objects.Pod) -> wire.Request:
        request = pods.read_request(pod, self._settings)
        if request is None:
            raise InvalidValue(
                f"pod {legible(pod.metadata.name)}",
                "",
                f"it asks for no card; give a container resources.limits of "
                f"{self._settings.profiles[0].gpu}",
            )
        return request


class _Cards(msgspec.Struct, frozen=True):
    """Of a snapshot, who has which cards."""

    nodes: tuple[wire.Node, ...]


def _duplicates(snapshot: bytes) -> Duplicates:
    found = Duplicates()
    for node in msgspec.json.decode(snapshot, type=_Cards).nodes:
        found.set(node.name, (card.uuid for card in node.cards))
    return found


def _compared(view: NodeView, duplicates: Duplicates) -> NodeView:
    def compared(card: CardView) -> CardView:
        others = duplicates.others(card.uuid, view.node)
        return msgspec.structs.replace(card, also_on=others) if others else card

    return msgspec.structs.replace(view, cards=tuple(map(compared, view.cards)))


def find_pod(server: ApiServer, namespace: str, name: str, *, deadline_s: float) -> objects.Pod:
    """A pod, by name.

    Args:
        server: where.
        namespace: its namespace.
        name: its name.
        deadline_s: seconds that the request may take.

    Raises:
        NotFound: there is none.
        KubeError: it cannot be read; ``Forbidden`` where the right is missing.
        InvalidValue: it is not as Kubernetes' own fields should be.
    """
    try:
        data = server.get(f"/api/v1/namespaces/{namespace}/pods/{name}", deadline_s=deadline_s)
    except NotFound as error:
        raise NotFound(
            f"pod {namespace}/{name}",
            "there is none",
            "look at `kubectl get pods --all-namespaces`",
            error.status,
        ) from error
    return pods.decode_pod(data)
