"""A cluster at one moment, to be asked: why, and what if.

The answers are the production engine's, on a copy of the state: read from an API server, or from a
snapshot that somebody else took. Nothing is written anywhere, and a snapshot asked the same gives
the same answers, so what happened in a cluster can be looked at on a desk. What a running extender
holds in memory for pods on their way is not in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar
from urllib.parse import quote

import msgspec

from hami_py._native import Allocator
from hami_py.errors import InvalidValue
from hami_py.kube import ApiServer, Sink, list_objects
from hami_py.kube.errors import NotFound
from hami_py.model import legible, pods
from hami_py.model.pods import objects, wire
from hami_py.scheduler.cluster import NODES, PODS, QUOTAS, Cluster
from hami_py.scheduler.duplicates import Duplicates
from hami_py.scheduler.explanation import CardView, ContainerView, LeftOut, NodeView, Outcome
from hami_py.scheduler.waiting import check_room

__all__ = [
    "CardView",
    "ClusterView",
    "ContainerView",
    "LeftOut",
    "NodeView",
    "Outcome",
    "find_pod",
]

T = TypeVar("T")


class ClusterView:
    """A cluster at one moment.

    Args:
        allocator: cards, quotas, and who has what.
        settings: how pods are read.
        nodes: the nodes whose labels and taints may exclude a pod (``pods.exclusion_reasons``); of
            a node that is not among them, only the cards count.
        barred: nodes that get nothing new, whatever they have, and why.
        left_out: objects that could not be decoded.

    Attributes:
        left_out: the same.
    """

    def __init__(
        self,
        allocator: Allocator,
        settings: pods.PodSettings | None = None,
        nodes: Iterable[objects.Node] = (),
        *,
        barred: Mapping[str, str] | None = None,
        left_out: Sequence[LeftOut] = (),
    ) -> None:
        self._allocator = allocator
        self._settings = settings or pods.PodSettings()
        self._nodes = {node.name: node for node in nodes}
        self._barred = dict(barred or {})
        self.left_out = tuple(left_out)

    @classmethod
    def read(
        cls,
        server: ApiServer,
        settings: pods.PodSettings | None = None,
        *,
        deadline_s: float = 300.0,
    ) -> ClusterView:
        """The cluster as an API server tells it now.

        Args:
            server: which.
            settings: how pods are read; HAMi's defaults if left out, whatever the cluster's
                webhook is told.
            deadline_s: seconds that each list may take; one of 100,000 pods has 200 pages.

        Raises:
            KubeError: nodes, quotas or pods cannot be listed; ``Forbidden``: a right is missing.
                What cannot be decoded or read is no error: it is taken as the scheduler takes it
                when it has just begun, and told of by ``left_out``, by the log, and by the nodes
                that get nothing new for it.
        """
        cluster = Cluster(Allocator(), settings or pods.PodSettings())
        left_out: list[LeftOut] = []

        def listed(kind: str, path: str, decoded_as: type[T], sink: Sink[T]) -> list[T]:
            found, undecoded = list_objects(server, path, decoded_as, deadline_s=deadline_s)
            sink.replace(found, undecoded)
            left_out.extend(LeftOut(kind, item.name, item.why) for item in undecoded)
            return found

        nodes = listed("node", NODES, objects.Node, cluster.nodes)
        listed("resourcequota", QUOTAS, objects.ResourceQuota, cluster.quotas)
        listed("pod", PODS, objects.Pod, cluster.pods)
        # A pod may outlive its node.
        names = {node.name for node in nodes} | {i.name for i in left_out if i.kind == "node"}
        barred = {name: why for name, why in cluster.nodes.barred().items() if name in names}
        return cls(cluster.allocator, cluster.settings, nodes, barred=barred, left_out=left_out)

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

        A pod that has its cards is looked at as if it had not. Nodes whose cards cannot be told are
        among them, with the reason and no cards; those without any are not (``without_cards``).

        Raises:
            InvalidValue: it asks for no card, or for what makes no sense; its annotations leave no
                room for ours; or it has no UID, because it was not made yet: ``what_if`` is for
                those.
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
        fits, full, unresolvable = other.filter(asked, None, 0)
        views = [
            msgspec.json.decode(other.explain(asked, node), type=NodeView)
            for node in [*fits, *full, *unresolvable]
        ]
        views += [
            NodeView(node, fits=False, reason=why, unresolvable=True)
            for node, why in self._barred.items()
        ]
        duplicates = _duplicates(state)
        views = [self._kept_away(pod, _compared(view, duplicates)) for view in views]
        return sorted(views, key=lambda view: (-(view.score or 0), not view.fits, view.node))

    def without_cards(self) -> tuple[str, ...]:
        """Nodes that nobody says to have cards, sorted."""
        described = {node.name for node in _described(self._allocator.snapshot())}
        return tuple(sorted(self._nodes.keys() - described - self._barred.keys()))

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
        fits, full, unresolvable = allocator.filter(asked, None, 0)
        whys = {node: self._why(pod, node) for node in [*fits, *full, *unresolvable]}
        for node, reason in {**full, **unresolvable}.items():
            whys[node].append(reason)
        for node, reason in self._barred.items():
            whys[node] = [*self._why(pod, node), reason]
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
        return list(pods.exclusion_reasons(pod, node)) if node is not None else []

    def _request(self, pod: objects.Pod) -> wire.PodRequest:
        request = pods.read_request(pod, self._settings)
        if request is None:
            raise InvalidValue(
                f"pod {legible(pod.metadata.name)}",
                "",
                f"it asks for no card; give a container resources.limits of "
                f"{self._settings.profiles[0].gpu}",
            )
        if pods.annotations.ASSIGNMENT not in pod.annotations:
            check_room(pod, request)
        return request


class _Cards(msgspec.Struct, frozen=True):
    """Of a snapshot, who has which cards."""

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
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
        data = server.get(path, deadline_s=deadline_s)
    except NotFound as error:
        raise NotFound(
            f"pod {namespace}/{name}",
            "there is none",
            "look at `kubectl get pods --all-namespaces`",
            error.status,
        ) from error
    return pods.decode_pod(data)
