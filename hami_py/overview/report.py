"""The answer: nodes, cards, containers and pods that wait.

Memory is in bytes, times are in seconds, and shares are parts of a card's time: 1 is all of it.
``None`` is unknown, or no limit where it says so.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from hami_py.model import NodeCard, SliceUse
from hami_py.model.columns import record
from hami_py.model.pods.wire import NodeMode


class NodeReport(msgspec.Struct, frozen=True):
    """A node with cards.

    Attributes:
        mode: how its cards are used; empty: unknown.
        cards: its cards, by index. All allocated amounts are ``None`` if the user may not read the
            pods of all namespaces.
        blocked: why it gets no new pods, whatever its cards have free.
        silent: why the use of its cards is unknown.
    """

    name: str
    address: str
    mode: NodeMode | Literal[""]
    level: str | None = None
    cards: tuple[NodeCard, ...] = ()
    blocked: str | None = None
    silent: str | None = None


class WaitingPod(msgspec.Struct, frozen=True):
    """A pod that requests cards and does not run.

    Attributes:
        node: the node that it is bound to; ``None``: it is not bound.
        nodes: how many nodes have this reason; ``None``: it is not about nodes.
        of: how many nodes with cards there are.
    """

    namespace: str
    pod: str
    node: str | None
    reason: str
    nodes: int | None = None
    of: int | None = None

    def __str__(self) -> str:
        """The reason, with the number of nodes."""
        return (
            self.reason if self.nodes is None else f"{self.reason} ({self.nodes}/{self.of} nodes)"
        )


class NamespaceReport(msgspec.Struct, frozen=True):
    """The resources of a namespace's pods, with one of its quotas.

    Attributes:
        quota: the quota's name; ``None``: it has none of cards.
        cards: cards, summed over containers.
        cards_limit: the most cards; ``None``: no limit, as for memory and the share.
        memory: memory, summed over the cards of all containers.
        share: parts of cards' time, summed likewise.
        memory_peak: the sum of its containers' peaks; ``None`` if the figures of one are unknown.
    """

    namespace: str
    quota: str | None
    cards: int
    cards_limit: int | None
    memory: int
    memory_limit: int | None
    share: float
    share_limit: float | None
    memory_peak: int | None


class Overview(msgspec.Struct, frozen=True):
    """A cluster at one moment.

    Attributes:
        nodes: the nodes with cards, by name.
        containers: the containers with cards, by namespace, pod, name and card.
        waiting: the pods that do not run, by namespace and name.
        namespaces: the namespaces that have cards or quotas, by name.
        notes: what is missing in this answer, and why.
    """

    nodes: tuple[NodeReport, ...] = ()
    containers: tuple[SliceUse, ...] = ()
    waiting: tuple[WaitingPod, ...] = ()
    namespaces: tuple[NamespaceReport, ...] = ()
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        """The report as ``hami inspect -o json`` writes it."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return {**fields, "containers": [record(each) for each in self.containers]}
