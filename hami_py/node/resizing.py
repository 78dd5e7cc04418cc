"""Whether the limits of a running container may change.

Smaller limits are always possible. The container may still use more: then it gets no new memory
until it uses less. A larger limit needs room on the card beside everything that is assigned there.
"""

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from hami_py.model.pods.wire import Assignment, CardAllocation
from hami_py.node.decision import NodeView, assigned_on, shortage


def refusal(
    view: NodeView, pod: str, wanted: Mapping[str, tuple[CardAllocation, ...]]
) -> tuple[str, str] | None:
    """Why containers of a pod cannot get these limits together, and the fix; None = they can.

    Args:
        view: the node.
        pod: the pod's UID; it must be in ``view.pods``.
        wanted: by container, its cards with the new limits.
    """
    bound = view.pods[pod]
    changed = replace(bound, assignment=with_cards(bound.assignment, wanted))
    then = replace(view, pods={**view.pods, pod: changed})
    for container, cards in sorted(wanted.items()):
        before = {(card.card, card.mig): card for card in bound.assignment.containers[container]}
        for card in cards:
            lacking = _lacking(then, before[card.card, card.mig], card)
            if lacking is not None:
                return f"container {container}: {lacking[0]}", lacking[1]
    return None


def _lacking(
    then: NodeView, before: CardAllocation, wanted: CardAllocation
) -> tuple[str, str] | None:
    """Why a card has no room for the new limits of all containers, and the fix."""
    if wanted.is_mig and wanted != before:
        fix = "create a pod that requests another instance"
        return f"card {wanted.card} is a MIG instance, whose limits are fixed", fix
    if wanted.cores == 0 and before.cores != 0:
        return f"card {wanted.card}: cores 0 would remove its time limit", "request 1 to 100"
    if wanted.memory_mib <= before.memory_mib and wanted.cores <= before.cores:
        return None
    capacity = then.cards.get(wanted.card)
    if capacity is None:
        return f"card {wanted.card} is not on this node any more", "delete the pod"
    lacking = shortage(capacity, wanted, assigned_on(then, wanted.card))
    return (lacking, "request less, or retry when other pods have ended") if lacking else None


def with_cards(
    assignment: Assignment, cards: Mapping[str, tuple[CardAllocation, ...]]
) -> Assignment:
    """The assignment with these cards for some containers."""
    return msgspec.structs.replace(assignment, containers={**assignment.containers, **cards})
