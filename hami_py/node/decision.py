"""Whether a container may run on the devices that the kubelet has picked for it.

The scheduler has assigned cards to the container, and the kubelet has picked devices. Usually both
name the same cards, because the plugin tells the kubelet its preference. But the kubelet may ignore
it, so there are these cases, in this order:

1. The cards are equal: the container runs, if the ledger has room on them.
2. Another container on the node, which has not started, is assigned to the picked card, and both
   containers fit on the other's card: the two cards are swapped.
3. The picked card has room beside everything that is assigned on the node: the container is
   assigned to it.
4. Otherwise the container waits. The kubelet asks again after some seconds.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import msgspec

from hami_py.model.pods.wire import Assignment, CardAllocation, Kind

_WHOLE = 100


@dataclass(frozen=True)
class Capacity:
    """The amounts of a card that may be allocated."""

    memory_mib: int
    cores: int = _WHOLE


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

    def has_started(self, pod: str, container: str) -> bool:
        """Whether a container has its cards, or had them."""
        return (pod, container) in self.allocated or (pod, container) in self.ended


@dataclass(frozen=True)
class Run:
    """The container may run.

    Attributes:
        cards: its cards.
        changed: assignments that have to change for it, by pod.
    """

    cards: tuple[CardAllocation, ...]
    changed: Mapping[str, Assignment] = field(default_factory=dict)


@dataclass(frozen=True)
class Hold:
    """The container has to wait.

    Attributes:
        reason: why, in one line, for its event.
        is_mismatch: the kubelet has picked other cards than the scheduler; waiting alone may not
            help.
    """

    reason: str
    is_mismatch: bool = False


Decision: TypeAlias = Run | Hold


def decide(view: NodeView, pod: str, container: str, picked: Sequence[str]) -> Decision:
    """Decide about a container that is about to start.

    Args:
        view: the node.
        pod: the pod's UID; it must be in ``view.pods``.
        container: the container's name.
        picked: the UUIDs of the cards of its devices; one occurs as often as it has a device.
    """
    assigned = view.pods[pod].assignment.containers.get(container, ())
    if not assigned:
        return Hold("the pod's assignment has no card for this container")
    unknown = sorted({*picked} - view.cards.keys())
    if unknown:
        return Hold(f"card {unknown[0]} is not on this node any more", is_mismatch=True)
    if sorted(picked) == sorted(card.card for card in assigned):
        return _if_room(view, pod, container, assigned)
    if len(picked) != len(assigned):
        why = (
            f"the kubelet has picked {len(picked)} devices, and the container needs {len(assigned)}"
        )
        return Hold(why, is_mismatch=True)
    if len({*picked}) < len(assigned):
        twice = next(card for card, count in Counter(picked).items() if count > 1)
        why = (
            f"the kubelet has picked two devices of card {twice}, and the container needs "
            f"{len(assigned)} different cards"
        )
        return Hold(why, is_mismatch=True)
    return _swap(view, pod, container, picked) or _move(view, pod, container, picked)


def whole_cards(view: NodeView, pod: str, container: str, picked: Sequence[str]) -> Decision:
    """Decide about a container without an assignment that may have whole cards.

    Args:
        view: the node.
        pod: the pod's UID.
        container: the container's name.
        picked: the UUIDs of the cards of its devices.
    """
    for card in sorted({*picked}):
        if card not in view.cards:
            return Hold(f"card {card} is not on this node any more", is_mismatch=True)
        # The pod's own containers get the same card: init containers run before the others.
        others = replace(
            view, allocated={key: each for key, each in view.allocated.items() if key[0] != pod}
        )
        if any(assigned_on(others, card)):
            why = f"no card was assigned to it, and others have parts of card {card}"
            return Hold(why, is_mismatch=True)
    return Run(
        tuple(
            CardAllocation(card, view.cards[card].memory_mib, view.cards[card].cores)
            for card in sorted({*picked})
        )
    )


def _if_room(view: NodeView, pod: str, container: str, cards: Sequence[CardAllocation]) -> Decision:
    """Case 1: run on these cards, if the ledger has room."""
    for card in cards:
        others = _allocated_on(view, card.card, beside=(pod, container))
        lacking = shortage(view.cards[card.card], card, others)
        if lacking:
            return Hold(f"{lacking}: containers that should have ended still have the rest")
    return Run(tuple(cards))


def _swap(view: NodeView, pod: str, container: str, picked: Sequence[str]) -> Run | None:
    """Case 2: exchange single cards with containers that have not started."""
    after = view
    for wrong, right in _replacements(view.pods[pod].assignment.containers[container], picked):
        found = _exchanged(after, (pod, container), wrong, right)
        if found is None:
            return None
        after = found
    changed = {
        uid: bound.assignment
        for uid, bound in after.pods.items()
        if bound.assignment != view.pods[uid].assignment
    }
    mine = after.pods[pod].assignment.containers[container]
    decision = _if_room(view, pod, container, mine)
    return Run(decision.cards, changed) if isinstance(decision, Run) else None


def _exchanged(
    view: NodeView, me: tuple[str, str], wrong: CardAllocation, right: str
) -> NodeView | None:
    """The node after two containers have exchanged a card; None = no other one can."""
    if wrong.card not in view.cards:
        return None
    for partner in _partners(view, me, wrong.card, right):
        after = _with_card(view, me, wrong.card, right, without=partner)
        after = _with_card(after, partner, right, wrong.card, without=me)
        if not any(_is_overbooked(view, after, card) for card in (wrong.card, right)):
            return after
    return None


def _partners(
    view: NodeView, me: tuple[str, str], wrong: str, right: str
) -> Iterator[tuple[str, str]]:
    """Containers that have not started and have the picked card, but not the other one."""
    for uid, bound in sorted(view.pods.items()):
        for name, allocations in sorted(bound.assignment.containers.items()):
            cards = {allocation.card for allocation in allocations}
            is_other = (uid, name) != me and not view.has_started(uid, name)
            if is_other and right in cards and wrong not in cards:
                yield uid, name


def _with_card(
    view: NodeView, key: tuple[str, str], before: str, after: str, without: tuple[str, str]
) -> NodeView:
    """The node after a container has another card.

    Containers of the pod that run before or after it, and have not started, follow: the kubelet
    gives them the same devices. One does not.
    """
    uid, container = key
    bound = view.pods[uid]
    containers = dict(bound.assignment.containers)
    for name, cards in containers.items():
        in_turn = "init" in (bound.kinds.get(name), bound.kinds.get(container))
        follows = in_turn and (uid, name) != without and not view.has_started(uid, name)
        has_after = any(card.card == after for card in cards)
        if name == container or (follows and not has_after):
            containers[name] = tuple(
                msgspec.structs.replace(card, card=after) if card.card == before else card
                for card in cards
            )
    assignment = msgspec.structs.replace(bound.assignment, containers=containers)
    return replace(view, pods={**view.pods, uid: replace(bound, assignment=assignment)})


def _is_overbooked(before: NodeView, after: NodeView, card: str) -> bool:
    """Whether more is assigned on a card than it has, and than before."""
    capacity = after.cards[card]
    return any(
        now > max(earlier, most)
        for now, earlier, most in zip(
            assigned_on(after, card),
            assigned_on(before, card),
            (capacity.memory_mib, capacity.cores),
            strict=True,
        )
    )


def _move(view: NodeView, pod: str, container: str, picked: Sequence[str]) -> Decision:
    """Case 3: take the picked cards, if they have room beside all that is assigned."""
    assignment = view.pods[pod].assignment
    mine = list(assignment.containers[container])
    for wrong, right in _replacements(mine, picked):
        others = assigned_on(view, right, beside=(pod, container))
        wanted = msgspec.structs.replace(wrong, card=right)
        lacking = shortage(view.cards[right], wanted, others)
        if lacking:
            why = f"the kubelet has picked card {right} and not {wrong.card}; {lacking}"
            return Hold(why, is_mismatch=True)
        mine = [
            msgspec.structs.replace(card, card=right) if card.card == wrong.card else card
            for card in mine
        ]
    decision = _if_room(view, pod, container, mine)
    if isinstance(decision, Hold):
        return decision
    return Run(decision.cards, {pod: _with(assignment, container, mine)})


def _replacements(
    assigned: Sequence[CardAllocation], picked: Sequence[str]
) -> list[tuple[CardAllocation, str]]:
    """The cards that were assigned and not picked, each with one that was picked instead."""
    names = {card.card for card in assigned}
    wrong = [card for card in assigned if card.card not in picked]
    return list(zip(wrong, sorted({*picked} - names), strict=True))


def peak(bound: BoundPod, card: str | None, beside: str | None = None) -> tuple[int, int]:
    """The most memory and cores that the containers of a pod have at one time.

    Args:
        bound: the pod.
        card: of this card; None = of all cards together.
        beside: only while this container runs, and without it.
    """
    amounts: dict[Kind, list[tuple[int, int]]] = {"init": [], "sidecar": [], "app": []}
    for name, cards in bound.assignment.containers.items():
        if name != beside:
            amounts[bound.kinds.get(name, "app")].append(_sum(cards, card))
    kind = bound.kinds.get(beside, "app") if beside is not None else None
    # Init containers run one after the other, beside sidecars, and before the others.
    in_turn = [*amounts["init"], (0, 0)] if kind in (None, "sidecar") else [(0, 0)]
    together = amounts["app"] if kind != "init" else []
    memory_mib, cores = (
        sum(each[part] for each in amounts["sidecar"])
        + max(*(each[part] for each in in_turn), sum(each[part] for each in together))
        for part in (0, 1)
    )
    return memory_mib, cores


def assigned_on(
    view: NodeView, card: str, beside: tuple[str, str] | None = None
) -> tuple[int, int]:
    """The most that is assigned on a card at one time.

    For pods that are not known any more it is what the ledger has.

    Args:
        view: the node.
        card: the card's UUID.
        beside: only while this container runs, and without it.
    """
    known = {uid: _without_ended(view, uid, bound) for uid, bound in view.pods.items()}
    unknown = {uid: pod for uid, pod in _allocated(view).items() if uid not in view.pods}
    return _at_one_time({**known, **unknown}, card, beside)


def _without_ended(view: NodeView, pod: str, bound: BoundPod) -> BoundPod:
    """A pod without its init containers that have ended: the scheduler does not count them."""
    containers = {
        name: cards
        for name, cards in bound.assignment.containers.items()
        if (pod, name) not in view.ended or bound.kinds.get(name) != "init"
    }
    return replace(
        bound, assignment=msgspec.structs.replace(bound.assignment, containers=containers)
    )


def _allocated_on(view: NodeView, card: str, beside: tuple[str, str]) -> tuple[int, int]:
    """The same of what the ledger has."""
    return _at_one_time(_allocated(view), card, beside)


def _at_one_time(
    pods: Mapping[str, BoundPod], card: str, beside: tuple[str, str] | None
) -> tuple[int, int]:
    amounts = [
        peak(bound, card, beside[1] if beside is not None and uid == beside[0] else None)
        for uid, bound in pods.items()
    ]
    return sum(each[0] for each in amounts), sum(each[1] for each in amounts)


def _allocated(view: NodeView) -> dict[str, BoundPod]:
    """The pods with the cards that the ledger has for them.

    The containers of a pod that is not known any more may all run at one time.
    """
    containers: dict[str, dict[str, tuple[CardAllocation, ...]]] = {}
    for (uid, name), cards in view.allocated.items():
        containers.setdefault(uid, {})[name] = tuple(cards)
    return {
        uid: BoundPod(
            Assignment(1, uid, "", cards), view.pods[uid].kinds if uid in view.pods else {}
        )
        for uid, cards in containers.items()
    }


def _sum(cards: Iterable[CardAllocation], card: str | None) -> tuple[int, int]:
    amounts = [(each.memory_mib, each.cores) for each in cards if card in (None, each.card)]
    return sum(amount[0] for amount in amounts), sum(amount[1] for amount in amounts)


def shortage(capacity: Capacity, wanted: CardAllocation, allocated: tuple[int, int]) -> str | None:
    """What a card lacks, in one clause; None = nothing."""
    free_mib, free_cores = capacity.memory_mib - allocated[0], capacity.cores - allocated[1]
    if wanted.memory_mib > free_mib:
        return f"card {wanted.card} has {free_mib} MiB free, and {wanted.memory_mib} are needed"
    if wanted.cores > free_cores:
        return f"card {wanted.card} has {free_cores} % free, and {wanted.cores} are needed"
    return None


def _with(assignment: Assignment, container: str, cards: Sequence[CardAllocation]) -> Assignment:
    containers = {**assignment.containers, container: tuple(cards)}
    return msgspec.structs.replace(assignment, containers=containers)
