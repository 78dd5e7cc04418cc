"""Whether the limits of a running container may change.

Smaller limits are always possible. The container may still use more: then it gets no new memory
until it uses less. A larger limit needs room on the card beside everything that is assigned there.
"""

from collections.abc import Mapping, Sequence

import msgspec

from hami_py.model.pods.wire import Assignment, CardAllocation
from hami_py.node.decision import NodeView, assigned_on, shortage


def refusal(
    view: NodeView, pod: str, container: str, cards: Sequence[CardAllocation]
) -> str | None:
    """Why a container cannot get these limits, in one clause; None = it can.

    Args:
        view: the node.
        pod: the pod's UID; it must be in ``view.pods``.
        container: the container's name.
        cards: its cards with the new limits.
    """
    present = {card.card: card for card in view.pods[pod].assignment.containers[container]}
    for card in cards:
        before = present[card.card]
        if card.memory_mib <= before.memory_mib and card.cores <= before.cores:
            continue
        capacity = view.cards.get(card.card)
        if capacity is None:
            return f"card {card.card} is not on this node any more"
        others = assigned_on(view, card.card, beside=(pod, container))
        lacking = shortage(capacity, card, others)
        if lacking is not None:
            return lacking
    return None


def with_cards(
    assignment: Assignment, cards: Mapping[str, tuple[CardAllocation, ...]]
) -> Assignment:
    """The assignment with these cards for some containers."""
    return msgspec.structs.replace(assignment, containers={**assignment.containers, **cards})
