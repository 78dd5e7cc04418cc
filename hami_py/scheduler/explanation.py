"""What a cluster that was asked about says: nodes, cards and pods, as Python and as JSON.

A score is told on three scales: the allocator's is 0 to 10,000; ``NodeView.score`` is that in
hundreds, 0 to 100; and kube-scheduler is told 0 to 10, where 10 is the one best node and 0 to 9 is
where the others lie between the lowest and the highest score of those that it asked about.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from hami_py.model.pods import wire

__all__ = ["CardView", "ContainerView", "LeftOut", "NodeView", "Outcome"]


class LeftOut(msgspec.Struct, frozen=True):
    """An object that is not as Kubernetes' own fields should be.

    It is not overlooked: a bound pod with an assignment bars its node, a quota allows nothing, and
    a node offers nothing.

    Attributes:
        kind: ``node``, ``pod`` or ``resourcequota``.
        name: its name, with the namespace before it if it has one: ``namespace/name``.
        reason: what is wrong with it, in one line.
    """

    kind: str
    name: str
    reason: str


class ContainerView(msgspec.Struct, frozen=True):
    """One container on one card.

    Attributes:
        container: its name.
        fits: whether the card has room for it.
        code: a word for programs, if not (``CardReason::code`` in
            native/allocator/src/rules/card_reason.rs).
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
        unresolvable: no eviction would help: it would not fit if the node were empty either, or a
            quota is used up, or it is kept away by what is no card.
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
