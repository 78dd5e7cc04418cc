"""An API server with nodes, pods, quotas and node agents, which a test can make refuse."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from hami_py.kube import ApiServer
from hami_py.kube.errors import Forbidden, NotFound
from hami_py.model import NodeCard, SliceUse, pods
from hami_py.model.pods import wire
from hami_py.monitor import NodeFigures, encode
from hami_py.overview import Overview, Reader, Scope

Object = dict[str, Any]

GIB = 1 << 30
CARD_MIB = 40 * 1024

AGENTS = "/api/v1/namespaces/hami-system/pods"


class FakeCluster:
    """Objects by path, and the figures that agents answer by node.

    ``forbidden`` decides about a path; ``answering`` is called before an agent answers. ``asked``
    has all paths.
    """

    namespace = "team"

    def __init__(self) -> None:
        self.lists: dict[str, list[Object]] = {
            "/api/v1/nodes": [],
            "/api/v1/pods": [],
            "/api/v1/resourcequotas": [],
            AGENTS: [],
        }
        self.figures: dict[str, NodeFigures] = {}
        self.forbidden: Callable[[str], bool] = lambda _: False
        self.answering: Callable[[str], None] = lambda _: None
        self.asked: list[str] = []
        self._lock = threading.Lock()

    def get(self, path: str, query: Mapping[str, str] | None = None, *, deadline_s: float) -> bytes:
        with self._lock:
            self.asked.append(path)
        if self.forbidden(path):
            resource = "pods/proxy" if "/proxy/" in path else path.rpartition("/")[2]
            user = f'{resource} is forbidden: User "u" cannot read resource "{resource}"'
            raise Forbidden(f"GET {path}", f"403: {user}", "grant it", 403)
        if "/proxy/" in path:
            return self._agent(path)
        items = self.lists.get(path)
        if items is None and path.endswith("/pods"):
            namespace = path.split("/")[4]
            everywhere = self.lists["/api/v1/pods"]
            items = [pod for pod in everywhere if pod["metadata"]["namespace"] == namespace]
        assert items is not None, path
        metadata = {"resourceVersion": "1"}
        return json.dumps({"kind": "List", "metadata": metadata, "items": items}).encode()

    def _agent(self, path: str) -> bytes:
        name = path.split("/")[6].removesuffix("%3A9382")
        self.answering(name)
        node = name.removeprefix("agent-")
        if node not in self.figures:
            raise NotFound(f"GET {path}", "404: Not Found", "forget it", 404)
        return encode(self.figures[node])

    def add_node(self, name: str, cards: int = 1, *, agent: bool = True, **metadata: Any) -> None:
        """A node with cards ``NAME-0``, … of 40 GiB, and its agent."""
        described = tuple(
            wire.Card(f"GPU-{name}-{at}", at, "NVIDIA A100", CARD_MIB) for at in range(cards)
        )
        annotations = {pods.annotations.CARDS: pods.encode_cards(described)}
        annotations |= metadata.pop("annotations", {})
        addresses = [{"type": "Hostname", "address": name}]
        addresses += [{"type": "InternalIP", "address": "10.0.0.1"}]
        self.lists["/api/v1/nodes"].append(
            {
                "metadata": {"name": name, "annotations": annotations, **metadata},
                "status": {"addresses": addresses},
            }
        )
        if agent:
            self.add_agent(name)

    def add_agent(self, node: str, phase: str = "Running") -> None:
        """The pod of a node agent."""
        ports = [{"name": "other", "containerPort": 1}, {"name": "probes", "containerPort": 9382}]
        self.lists[AGENTS].append(
            {
                "metadata": {"name": f"agent-{node}", "namespace": "hami-system"},
                "spec": {"nodeName": node, "containers": [{"ports": ports}]},
                "status": {"phase": phase},
            }
        )

    def add_pod(
        self,
        name: str,
        *allocated: wire.CardAllocation,
        node: str | None = None,
        namespace: str = "team",
        mib: int = 1024,
        status: Object | None = None,
        **spec: Any,
    ) -> None:
        """A pod that requests a card; with a node it is bound, and has these cards."""
        limits = {"nvidia.com/gpu": max(1, len(allocated)), "nvidia.com/gpumem": mib}
        metadata: Object = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
        if node is not None:
            assignment = wire.Assignment(1, f"uid-{name}", node, {"main": allocated})
            written = {pods.annotations.ASSIGNMENT: pods.encode_assignment(assignment)}
            metadata["annotations"], spec["nodeName"] = written, node
        containers = [{"name": "main", "resources": {"limits": limits}}]
        self.lists["/api/v1/pods"].append(
            {
                "metadata": metadata,
                "spec": {"containers": containers, **spec},
                "status": status or {"phase": "Running" if node else "Pending"},
            }
        )

    def overview(self, scope: Scope | None = None) -> Overview:
        """What a reader shows of it."""
        return Reader(cast(ApiServer, self), scope or Scope(own="team")).read()


def on(card: str, mib: int = 1024, cores: int = 0) -> wire.CardAllocation:
    return wire.CardAllocation(card, mib, cores)


def figures(node: str, *containers: SliceUse, used: int = 0) -> NodeFigures:
    """The figures of a node with one card."""
    card = NodeCard(f"GPU-{node}-0", 0, "NVIDIA A100", CARD_MIB << 20, used, 0, 0.0, 0, True)
    containers = tuple(replace(each, node=node) for each in containers)
    return NodeFigures(node, (card,), containers, registered=True, level="preload")
