"""The objects that are read from the API server, and the fields of them that count here."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from hami_py.cluster.view import Listed
from hami_py.kube import Undecoded
from hami_py.model.pods import objects
from hami_py.model.pods.decoding import ApiObject, prepare
from hami_py.model.pods.statuses import DetailedStatus, Waiting


class SeenPod(objects.Pod, frozen=True):
    """A pod that requests cards."""

    status: DetailedStatus | None = None

    @property
    def waits_for(self) -> tuple[Waiting, ...]:
        """The reasons for which its containers wait, init containers first."""
        states = (self.status or DetailedStatus()).states
        return tuple(state.waiting for state in states if state.waiting)


class NodeAddress(ApiObject, frozen=True):
    """``NodeAddress``."""

    type: str = ""
    address: str = ""


class NodeStatus(ApiObject, frozen=True):
    """``NodeStatus``."""

    addresses: tuple[NodeAddress, ...] | None = None


class SeenNode(objects.Node, frozen=True):
    """A node, with its addresses."""

    status: NodeStatus = NodeStatus()

    @property
    def address(self) -> str:
        """Its internal IP address; empty: it has none."""
        found = (each.address for each in self.status.addresses or () if each.type == "InternalIP")
        return next(found, "")


class Port(ApiObject, frozen=True):
    """``ContainerPort``."""

    name: str | None = None
    container_port: int = 0


class AgentContainer(ApiObject, frozen=True):
    """``Container``, of a node agent."""

    ports: tuple[Port, ...] | None = None


class AgentSpec(ApiObject, frozen=True):
    """``PodSpec``, of a node agent."""

    node_name: str | None = None
    containers: tuple[AgentContainer, ...] | None = None


class AgentPod(ApiObject, frozen=True):
    """The pod of a node agent."""

    metadata: objects.Metadata = objects.Metadata()
    spec: AgentSpec = AgentSpec()
    status: objects.PodStatus | None = None

    @property
    def is_running(self) -> bool:
        """Whether it can answer."""
        return self.status is not None and self.status.phase == "Running"

    @property
    def port(self) -> int | None:
        """The port of its figures."""
        ports = (port for each in self.spec.containers or () for port in each.ports or ())
        return next((port.container_port for port in ports if port.name == "probes"), None)


prepare(AgentPod, SeenNode, SeenPod, objects.ResourceQuota)


class Named(Protocol):
    """An object with a name."""

    @property
    def metadata(self) -> objects.Metadata:
        """Its names."""


T = TypeVar("T", bound=Named)


class Store(Generic[T]):
    """The objects of one kind, by namespace and name; a ``Sink`` that a reflector may fill.

    Attributes:
        version: another number after each change of what is decoded.
    """

    def __init__(self) -> None:
        self.version = 0
        self._lock = threading.Lock()
        self._objects: dict[tuple[str, str], T] = {}
        self._undecoded: dict[tuple[str, str], Undecoded] = {}

    def listed(self) -> Listed[T]:
        """The objects that are known now."""
        with self._lock:
            return Listed(list(self._objects.values()), list(self._undecoded.values()))

    def replace(self, items: list[T], undecoded: Sequence[Undecoded] = ()) -> None:
        """Takes a whole list."""
        with self._lock:
            self._objects = {_key(item): item for item in items}
            self._undecoded = {_key(item): item for item in undecoded}
            self.version += 1

    def changed(self, item: T) -> None:
        """Takes an object that is new or changed."""
        with self._lock:
            before = self._objects.get(_key(item))
            self._objects[_key(item)] = item
            # A kubelet writes the status of its node every few minutes.
            if self._undecoded.pop(_key(item), None) or before is None or _differ(before, item):
                self.version += 1

    def undecoded(self, item: Undecoded) -> None:
        """Takes an object that cannot be decoded."""
        with self._lock:
            self._objects.pop(_key(item), None)
            self._undecoded[_key(item)] = item
            self.version += 1

    def deleted(self, item: T | Undecoded) -> None:
        """Takes the deletion of an object."""
        with self._lock:
            self._objects.pop(_key(item), None)
            self._undecoded.pop(_key(item), None)
            self.version += 1


def _differ(before: Named, after: Named) -> bool:
    """Whether two versions of an object differ in more than the version."""
    version = before.metadata.resource_version
    metadata = msgspec.structs.replace(after.metadata, resource_version=version)
    same: object = msgspec.structs.replace(after, metadata=metadata)  # type: ignore[type-var]
    return before != same


def _key(item: Named | Undecoded) -> tuple[str, str]:
    return item.metadata.namespace or "", item.metadata.name
