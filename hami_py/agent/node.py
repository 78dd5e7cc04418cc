"""The node's own object, as the API server reports it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hami_py.kube import Undecoded
from hami_py.model.pods.decoding import ApiObject
from hami_py.model.pods.objects import Node, Quantities
from hami_py.model.pods.quantities import whole_number


class NodeStatus(ApiObject, frozen=True):
    """``NodeStatus``."""

    capacity: Quantities | None = None
    allocatable: Quantities | None = None


class OwnNode(Node, frozen=True):
    """A node with what the agent reads of it."""

    status: NodeStatus = NodeStatus()

    def shows(self, resources: Mapping[str, int]) -> bool:
        """Whether its status has these amounts, both as capacity and as allocatable."""
        return all(
            whole_number(amounts.get(name, "")) == amount
            for amounts in (self.status.capacity or {}, self.status.allocatable or {})
            for name, amount in resources.items()
        )


class NodeStore:
    """A receiver for a reflector that follows one node.

    Args:
        changed: called after each change.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self.node: OwnNode | None = None
        self._changed = changed

    def replace(self, objects: list[OwnNode], undecoded: Sequence[Undecoded] = ()) -> None:
        """Take a whole list."""
        self._set(objects[0] if objects else None)

    def changed(self, item: OwnNode) -> None:
        """Take the new or changed node."""
        self._set(item)

    def undecoded(self, item: Undecoded) -> None:
        """Take a node that cannot be decoded: what was known of it stays."""

    def deleted(self, item: OwnNode | Undecoded) -> None:
        """Take the deletion of the node."""
        self._set(None)

    def _set(self, node: OwnNode | None) -> None:
        self.node = node
        self._changed()
