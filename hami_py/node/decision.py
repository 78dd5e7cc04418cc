"""Whether a container may start with the cards that the scheduler has assigned to it.

It may, if the cards are on the node and healthy, and the ledger has room on them. Otherwise it
waits, and the kubelet tries again after some seconds. Which devices the kubelet has picked does not
matter: they only count how many containers have cards.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from hami_py.model.pods.wire import Assignment, CardAllocation, Kind

_WHOLE = 100

KUBELET_RETRIES = "do nothing: the kubelet tries again"


@dataclass(frozen=True)
class Capacity:
    """The amounts of a card that may be allocated.

    Attributes:
        memory_mib: its memory.
        cores: percent of its time.
        unhealthy: why no container may start on it; None = it is healthy.
        managed: containers get MIG instances of it.
    """

    memory_mib: int
    cores: int = _WHOLE
    unhealthy: str | None = None
    managed: bool = False


@dataclass(frozen=True)
class BoundPod:
    """A pod that is bound to the node and has not ended.

    Attributes:
        assignment: its cards by container.
        kinds: when each of its containers runs.
    """

    assignment: Assignment
    kinds: Mapping[str, Kind]


@dataclass(frozen=True)
class NodeView:
    """What is known of the node when a container starts.

    Attributes:
        cards: the node's cards by UUID.
        pods: the bound pods by UID.
        allocated: by pod and container, the cards that the ledger has for containers that have not
            ended.
        ended: the containers that the ledger has, and that have ended: they had their cards.
    """

    cards: Mapping[str, Capacity]
    pods: Mapping[str, BoundPod]
    allocated: Mapping[tuple[str, str], Sequence[CardAllocation]] = field(default_factory=dict)
    ended: Collection[tuple[str, str]] = ()


@dataclass(frozen=True)
class Run:
    """The container may run, with these cards."""

    cards: tuple[CardAllocation, ...]


@dataclass(frozen=True)
class Wait:
    """The container has to wait: why, and the one thing that a person does about it."""

    reason: str
    fix: str = KUBELET_RETRIES


Decision: TypeAlias = Run | Wait

Containers: TypeAlias = Mapping[str, Sequence[CardAllocation]]
"""The cards of a pod's containers, by their names."""


def decide(view: NodeView, pod: str, container: str) -> Decision:
    """Decide about a container that is about to start.

    Args:
        view: the node.
        pod: the pod's UID; it must be in ``view.pods``.
        container: the container's name.
    """
    assigned = view.pods[pod].assignment.containers.get(container, ())
    if not assigned:
        return Wait("the pod's assignment has no card for this container", "delete the pod")
    then = replace(view, allocated={**view.allocated, (pod, container): assigned})
    for card in assigned:
        capacity = view.cards.get(card.card)
        if capacity is None:
            return Wait(f"card {card.card} is not on this node any more", "delete the pod")
        if capacity.unhealthy is not None:
            why = f"card {card.card} is unhealthy: {capacity.unhealthy}"
            return Wait(why, "see the event CardUnhealthy of the node")
        lacking = shortage(capacity, card, _at_one_time(then, _allocated(then), card.card))
        if lacking:
            return Wait(f"{lacking}: containers that should have ended still have the rest")
    return Run(tuple(assigned))


def whole_cards(
    view: NodeView, pod: str, container: str, kinds: Mapping[str, Kind], picked: Sequence[str]
) -> Decision:
    """Decide about a container without an assignment that may have whole cards.

    Args:
        view: the node.
        pod: the pod's UID.
        container: the container's name.
        kinds: when each container of the pod runs.
        picked: the UUIDs of the cards of its devices; it gets as many cards, and these if they are
            free.
    """
    mine = {name: tuple(cards) for (uid, name), cards in view.allocated.items() if uid == pod}
    whole = [
        CardAllocation(uuid, capacity.memory_mib, capacity.cores)
        for uuid, capacity in view.cards.items()
        if capacity.unhealthy is None and not capacity.managed
    ]
    free = []
    for card in sorted(whole, key=lambda card: (card.card not in picked, card.card)):
        bound = BoundPod(Assignment(1, pod, "", {**mine, container: (card,)}), kinds)
        then = assigned_on(replace(view, pods={**view.pods, pod: bound}), card.card)
        if shortage(view.cards[card.card], card, then) is None:
            free.append(card)
    if len(free) < len(picked):
        return Wait(
            f"no card was assigned to it, and it needs {len(picked)} whole cards; {len(free)} "
            "are free"
        )
    return Run(tuple(free[: len(picked)]))


def peak(containers: Containers, kinds: Mapping[str, Kind], card: str | None) -> tuple[int, int]:
    """The most memory and cores that the containers of a pod have at one time.

    Args:
        containers: their cards.
        kinds: when they run; one that is not there may run at any time.
        card: of this card; None = of all cards together.
    """
    amounts: dict[Kind, list[tuple[int, int]]] = {"init": [(0, 0)], "sidecar": [], "app": []}
    for name, cards in containers.items():
        here = [each for each in cards if card in (None, each.card)]
        sums = (sum(each.memory_mib for each in here), sum(each.cores for each in here))
        amounts[kinds.get(name, "app")].append(sums)
    # Init containers run one after the other, beside sidecars, and before the others.
    memory_mib, cores = (
        sum(each[part] for each in amounts["sidecar"])
        + max(*(each[part] for each in amounts["init"]), sum(each[part] for each in amounts["app"]))
        for part in (0, 1)
    )
    return memory_mib, cores


def assigned_on(view: NodeView, card: str) -> tuple[int, int]:
    """The most memory and cores of a card that are assigned at one time.

    For pods that are not known any more it is what the ledger has.
    """
    pods = _allocated(view)
    for uid, bound in view.pods.items():
        # The scheduler does not count init containers that have ended.
        pods[uid] = {
            name: cards
            for name, cards in bound.assignment.containers.items()
            if (uid, name) not in view.ended or bound.kinds.get(name) != "init"
        }
    return _at_one_time(view, pods, card)


def _allocated(view: NodeView) -> dict[str, dict[str, Sequence[CardAllocation]]]:
    """By pod, what the ledger has for its containers."""
    pods: dict[str, dict[str, Sequence[CardAllocation]]] = {}
    for (uid, name), cards in view.allocated.items():
        pods.setdefault(uid, {})[name] = cards
    return pods


def _at_one_time(view: NodeView, pods: Mapping[str, Containers], card: str) -> tuple[int, int]:
    """The most that pods have of a card; all containers of a pod that is not known may run."""
    kinds = {uid: bound.kinds for uid, bound in view.pods.items()}
    amounts = [peak(containers, kinds.get(uid, {}), card) for uid, containers in pods.items()]
    return sum(each[0] for each in amounts), sum(each[1] for each in amounts)


def shortage(capacity: Capacity, wanted: CardAllocation, allocated: tuple[int, int]) -> str | None:
    """Why a card has no room for a container, in one clause; None = it has room.

    Args:
        capacity: the card's.
        wanted: what a container needs of it.
        allocated: what is allocated on it at one time then, with the container.
    """
    for most, needed, total, unit in (
        (capacity.memory_mib, wanted.memory_mib, allocated[0], "MiB"),
        (capacity.cores, wanted.cores, allocated[1], "%"),
    ):
        free = most - max(total - needed, 0)
        if needed > free:
            return f"card {wanted.card} has {free} {unit} free, and {needed} are needed"
    return None
