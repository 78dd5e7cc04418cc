"""The answers of ``view``: nodes, cards and pods, as Python types that are also the JSON.

Scores have three scales. The allocator's is 0 to 10,000. ``NodeView.score`` is 0 to 100, the same
in hundreds. kube-scheduler gets 0 to 10: 10 for the one best node, and for each other node 0 to 9
by its place between the lowest and the highest score of the nodes in the request.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import msgspec

from hami_py.model import Level
from hami_py.model.pods import wire
from hami_py.model.pods.decoding import prepare


class LeftOut(msgspec.Struct, frozen=True):
    """An object that cannot be decoded.

    It is not ignored: a bound pod with an assignment blocks its node, a quota allows nothing, and
    a node offers nothing.

    Attributes:
        kind: ``node``, ``pod`` or ``resourcequota``.
        name: ``name``, or ``namespace/name`` if it has a namespace.
    """

    kind: str
    name: str
    reason: str


class ContainerView(msgspec.Struct, frozen=True):
    """Whether one container fits on one card.

    Attributes:
        code: if not, the reason as a word for programs (``CardReason::code`` in native/allocator).
        reason: if not, the reason in words, with figures in MiB and percent.
    """

    container: str
    fits: bool
    code: str | None = None
    reason: str | None = None


class CardView(msgspec.Struct, frozen=True):
    """One card, judged for one pod.

    Attributes:
        free_mib: MiB that are not allocated, less what foreign programs use.
        free_cores: the percentage of its time that is not allocated.
        free_slots: how many more containers it can have.
        mig: whether each container gets a MIG instance that the node agent makes.
        also_on: other nodes that report the same card; its room counts on each.
    """

    uuid: str
    index: int
    model: str
    free_mib: int
    free_cores: int
    free_slots: int
    mig: bool = False
    containers: tuple[ContainerView, ...] = ()
    also_on: tuple[str, ...] = ()


class NodeView(msgspec.Struct, frozen=True):
    """One node, judged for one pod.

    Attributes:
        fits: whether the pod fits: the node has cards for it, and nothing else excludes the pod.
        reason: if not, the reason in one line with figures.
        unresolvable: whether no eviction would help: the pod would not fit on the empty node
            either, a quota is used up, or something other than cards excludes the pod.
        assignment: the cards that the pod would get; ``None`` if it does not fit.
        score: 0 to 100, the node's score with the pod on it; ``None`` if it does not fit. The
            module's docstring explains the scales.
    """

    node: str
    fits: bool
    reason: str | None = None
    unresolvable: bool = False
    cards: tuple[CardView, ...] = ()
    assignment: wire.Assignment | None = None
    score: int | None = None


@dataclass
class Refusals:
    """Why nodes do not fit a pod: by reason, the number of nodes.

    Attributes:
        of_cards: the reasons of cards, and of nodes whose cards are not known.
        closed: cordons and taints.
        unselected: the pod itself selects other nodes.
    """

    fits: int = 0
    of_cards: Counter[str] = field(default_factory=Counter)
    closed: Counter[str] = field(default_factory=Counter)
    unselected: Counter[str] = field(default_factory=Counter)

    @property
    def nodes(self) -> int:
        """The number of nodes that do not fit."""
        return self.of_cards.total() + self.closed.total() + self.unselected.total()


@dataclass(frozen=True)
class Outcome:
    """Where one pod would be placed.

    Attributes:
        pod: ``namespace/name``.
        reasons: by node, why the pod does not fit there. If the pod itself is invalid, or the
            webhook would refuse it, the only key is ``""``.
        warnings: what the webhook would remove, replace or warn of.
    """

    pod: str
    node: str | None = None
    assignment: wire.Assignment | None = None
    reasons: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class AllocatedCard(msgspec.Struct, frozen=True):
    """The allocated part of one card.

    Attributes:
        index: its index in NVML; ``None``: its node no longer publishes it.
        cores: the percentage of its time that may be allocated; ``cores_allocated`` likewise.
        slots_allocated: the containers that have part of it.
        state: ``schedulable``, ``cordoned``, ``unhealthy`` or ``missing``.
        level: the strongest level that it offers.
    """

    uuid: str
    index: int | None
    memory_mib: int
    cores: int
    memory_allocated_mib: int
    cores_allocated: int
    slots_allocated: int
    state: str
    level: Level


class AllocatedNode(msgspec.Struct, frozen=True):
    """The allocated part of a node's cards.

    Attributes:
        present: whether it publishes cards; if not, pods are still bound to it.
    """

    name: str
    present: bool
    mode: wire.NodeMode
    cards: tuple[AllocatedCard, ...]


class AllocatedNamespace(msgspec.Struct, frozen=True):
    """The resources of one namespace's pods, as its quotas count them.

    Attributes:
        cards: cards, summed over containers.
        memory_mib: MiB, summed over the cards of all containers.
        cores: percent, likewise.
    """

    namespace: str
    cards: int
    memory_mib: int
    cores: int
    quotas: tuple[wire.Quota, ...] = ()


prepare(NodeView, AllocatedNode, AllocatedNamespace)
