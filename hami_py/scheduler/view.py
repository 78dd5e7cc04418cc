"""A cluster at one moment, to be asked: why, and what if.

The answers are the production engine's, on a copy of the state: read from an API server, or from a
snapshot that somebody else took. Nothing is written anywhere, and a snapshot asked the same gives
the same answers, so what happened in a cluster can be looked at on a desk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from hami_py._native import Allocator
from hami_py.errors import InvalidValue
from hami_py.kube import ApiServer, list_objects
from hami_py.kube.errors import NotFound
from hami_py.model import pods
from hami_py.model.pods import objects, wire
from hami_py.scheduler.cluster import NODES, PODS, QUOTAS, Cluster

__all__ = ["CardView", "ClusterView", "ContainerView", "NodeView", "Outcome", "find_pod"]


class ContainerView(msgspec.Struct, frozen=True):
    """One container on one card.

    Attributes:
        container: its name.
        fits: whether the card has room for it.
        code: a word for programs, if not.
        reason: a few words for people, if not.
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
        free_mib: MiB that nobody was given.
        free_cores: percent that nobody was given.
        free_slots: device IDs that nobody has.
        containers: how it suits the pod's containers.
    """

    uuid: str
    index: int
    model: str
    free_mib: int
    free_cores: int
    free_slots: int
    containers: tuple[ContainerView, ...] = ()


class NodeView(msgspec.Struct, frozen=True):
    """One node, as it is for one pod.

    Attributes:
        node: its name.
        fits: whether the pod fits.
        reason: why not, in one line.
        unresolvable: it would not fit if the node were empty either.
        cards: each of its cards.
        assignment: what the pod would be given.
        score: 0 to 100.
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
        assignment: the cards that it would get.
        reasons: of the nodes where it does not fit.
    """

    pod: str
    node: str | None = None
    assignment: wire.Assignment | None = None
    reasons: dict[str, str] = field(default_factory=dict)


class ClusterView:
    """A cluster at one moment."""

    def __init__(self, allocator: Allocator, settings: pods.PodSettings | None = None) -> None:
        self._allocator = allocator
        self._settings = settings or pods.PodSettings()

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
            settings: how pods are read.
            deadline_s: how long each page of a list may take.
        """
        cluster = Cluster(Allocator(), settings or pods.PodSettings())
        cluster.nodes.replace(list_objects(server, NODES, objects.Node, deadline_s=deadline_s))
        cluster.quotas.replace(
            list_objects(server, QUOTAS, objects.ResourceQuota, deadline_s=deadline_s)
        )
        cluster.pods.replace(list_objects(server, PODS, objects.Pod, deadline_s=deadline_s))
        return cls(cluster.allocator, cluster.settings)

    @classmethod
    def restore(cls, snapshot: bytes, settings: pods.PodSettings | None = None) -> ClusterView:
        """The cluster as a snapshot tells it.

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
        """How each node is for a pod, best first. A pod that has its cards is looked at without.

        Raises:
            InvalidValue: it asks for no card, or for what makes no sense.
        """
        request = self._request(pod)
        other = Allocator.restore(self._allocator.snapshot())
        other.remove(request.pod.uid)
        asked = wire.encode(request)
        fits, full, never = other.filter(asked, None, 0)
        views = [
            msgspec.json.decode(other.explain(asked, node), type=NodeView)
            for node in [*fits, *full, *never]
        ]
        return sorted(views, key=lambda view: (-(view.score or 0), not view.fits, view.node))

    def what_if(self, wanted: Sequence[objects.Pod]) -> list[Outcome]:
        """Where pods would go, one after the other, if they were made now."""
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
        reasons = {**full, **never}
        if not fits:
            return Outcome(name, reasons=reasons)
        scores = allocator.score(asked, fits, 0, 0)
        best = min(scores, key=lambda scored: (-scored[1], scored[0]))[0]
        assignment = msgspec.json.decode(allocator.reserve(asked, best, 0), type=wire.Assignment)
        return Outcome(name, best, assignment, reasons)

    def _request(self, pod: objects.Pod) -> wire.Request:
        request = pods.read_request(pod, self._settings)
        if request is None:
            raise InvalidValue(
                f"pod {pod.metadata.name}",
                "",
                f"it asks for no card; give a container resources.limits of "
                f"{self._settings.profiles[0].gpu}",
            )
        return request


def find_pod(server: ApiServer, namespace: str, name: str, *, deadline_s: float) -> objects.Pod:
    """A pod, by name.

    Raises:
        NotFound: there is none.
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
