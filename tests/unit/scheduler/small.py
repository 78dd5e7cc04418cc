"""A small cluster: an API server that a test can make fail, and our verbs over it, by its clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from hami_py._native import Allocator
from hami_py.cluster.state import Cluster
from hami_py.kube import ApiServer
from hami_py.kube.errors import Conflict, NotFound, Unavailable
from hami_py.model import pods
from hami_py.model.pods import objects
from hami_py.scheduler.extender_api import BindArgs
from hami_py.scheduler.settings import Timing
from hami_py.scheduler.verbs import Verbs
from support.extender_calls import filtered
from support.fields import parsed

Object = dict[str, Any]

SECOND = 1_000_000_000


def away(*_: object) -> None:
    """No answer came; ``Server`` says whether it is done."""
    raise Unavailable("the request", "no answer from the API server", "try again later")


class Server:
    """Pods by name, and whom it has listed.

    ``before`` and ``after`` are called around a binding's write, and may raise.
    """

    def __init__(self) -> None:
        self.pods: dict[str, Object] = {}
        self.written: list[Object] = []
        self.listed: list[str] = []
        self.before: Callable[[Object], None] = lambda _: None
        self.after: Callable[[Object], None] = lambda _: None
        self.reading: Callable[[str], None] = lambda _: None

    def get(self, path: str, query: Mapping[str, str] | None = None, *, deadline_s: float) -> bytes:
        *_, parent, name = path.split("/")
        if name == "pods":
            return json.dumps(self.page(parent, query or {})).encode()
        self.reading(name)
        if name not in self.pods:
            raise NotFound(f"GET {path}", "404: not found", "forget it", 404)
        return json.dumps(self.pods[name]).encode()

    def page(self, parent: str, query: Mapping[str, str]) -> Object:
        """A page of pods, of a namespace or (``v1``) of all."""
        taken = parsed(query.get("fieldSelector", ""))
        begin, limit = int(query.get("continue", "0")), int(query["limit"])
        there = [
            pod
            for pod in self.pods.values()
            if parent in ("v1", pod["metadata"]["namespace"]) and taken(pod)
        ]
        more = {"continue": str(begin + limit)} if begin + limit < len(there) else {}
        metadata, items = {"resourceVersion": "1", **more}, there[begin : begin + limit]
        self.listed += [pod["metadata"]["name"] for pod in items]
        return {"kind": "PodList", "metadata": metadata, "items": items}

    def post(self, path: str, body: Object, *, deadline_s: float) -> bytes:
        self.before(body)
        metadata = body["metadata"]
        pod = self.pods.get(metadata["name"])
        if pod is None:
            raise NotFound(f"POST {path}", "404: not found", "forget it", 404)
        if pod["spec"].get("nodeName") or pod["metadata"]["uid"] != metadata["uid"]:
            raise Conflict(f"POST {path}", "409: it is another", "look at it again", 409)
        self.write(body)
        self.after(body)
        return b"{}"

    def write(self, body: Object) -> None:
        """As a Binding does it."""
        pod = self.pods[body["metadata"]["name"]]
        pod["spec"]["nodeName"] = body["target"]["name"]
        pod["metadata"].setdefault("annotations", {}).update(body["metadata"]["annotations"])
        self.written.append(body)


class Small:
    """Nodes ``a``, ``b``, … with cards of 10,000 MiB, and pods that ask for some of one."""

    def __init__(self, nodes: Sequence[str] = ("a", "b"), cards: int = 1) -> None:
        self.server = Server()
        self.now_s = 0.0
        self.cluster = Cluster(Allocator(), pods.PodSettings())
        self.verbs = Verbs(
            self.cluster,
            cast(ApiServer, self.server),
            Timing(),
            lambda: int(self.now_s * SECOND),
        )
        self._listed = [node(name, cards) for name in nodes]

    def listed(self) -> Small:
        """The watches have listed everything."""
        self.cluster.nodes.replace(self._listed)
        self.cluster.pods.replace([])
        self.cluster.quotas.replace([])
        self.cluster.budgets.replace([])
        return self

    def limit(self, namespace: str) -> None:
        """The namespace has a quota that allows a lot."""
        limit = {"limits.nvidia.com/gpu": "100000"}
        metadata = {"name": "q", "namespace": namespace, "uid": "q"}
        quota = {"metadata": metadata, "spec": {"hard": limit}}
        self.cluster.quotas.replace([objects.decode_quota.convert(quota)])

    def create(self, name: str, mib: int = 10_000, **metadata: Any) -> objects.Pod:
        """Create a pod at the API server, without an event to us."""
        limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(mib)}
        self.server.pods[name] = {
            "metadata": {"name": name, "namespace": "ml", "uid": f"uid-{name}", **metadata},
            "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
        }
        return self.seen(name)

    def seen(self, name: str) -> objects.Pod:
        """The pod as the API server has it now."""
        return pods.decode_pod.convert(self.server.pods[name])

    def bound_elsewhere(self, name: str, node: str, *grants: pods.wire.CardAllocation) -> None:
        """Bind the pod with these cards as another replica, without an event to us."""
        assignment = pods.wire.Assignment(1, f"uid-{name}", node, {"main": grants})
        pod = self.server.pods[name]
        pod["spec"]["nodeName"] = node
        written = {pods.annotations.ASSIGNMENT: pods.encode_assignment(assignment)}
        pod["metadata"]["annotations"] = written

    def told(self, name: str) -> None:
        """The watch tells of it."""
        self.cluster.pods.changed(self.seen(name))

    def fits(self, name: str, *nodes: str) -> list[str]:
        """Where the filter lets it go."""
        found = filtered(self.verbs, self.seen(name), list(nodes or "ab"))
        return found.node_names or []

    def bind(self, name: str, node: str) -> str:
        """The error of a bind; empty for success."""
        return self.verbs.bind(BindArgs(name, "ml", f"uid-{name}", node)).error


def node(name: str, cards: int) -> objects.Node:
    """As its agent publishes it."""
    there = tuple(
        pods.wire.Card(f"GPU-{name}-{i}", i, "NVIDIA A100-SXM4-80GB", 10_000) for i in range(cards)
    )
    written = {pods.annotations.CARDS: pods.encode_cards(there)}
    return objects.Node(objects.Metadata(name=name, annotations=written))
