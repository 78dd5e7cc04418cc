"""Cards that a pod was to have and that may yet be its own: whether they would still do.

A binding of which nobody knows what became is sent again with the same cards. They may have changed
meanwhile, and another replica may have given them to somebody else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hami_py.model.pods import wire
from hami_py.scheduler.explanation import NodeView

if TYPE_CHECKING:
    from hami_py._native import Allocator

__all__ = ["stands"]


def stands(allocator: Allocator, request: wire.PodRequest, assignment: wire.Assignment) -> bool:
    """Whether cards that were reserved a while ago would do today.

    Args:
        allocator: who reserved them.
        request: what the pod asks for.
        assignment: the cards.
    """
    asked = allocator.explain(wire.encode(request), assignment.node)
    seen = msgspec.json.decode(asked, type=NodeView)
    if seen.assignment is None or seen.assignment == assignment:
        return seen.fits
    plans = (seen.assignment, assignment)
    granted = [one for plan in plans for grants in plan.containers.values() for one in grants]
    if any(one.mig for one in granted) or not all(map(_says_mib, request.containers)):
        # An instance's place may be another's by now, and a share is of a card's size then.
        return False
    fitting = {(c.container, card.uuid) for card in seen.cards for c in card.containers if c.fits}
    given = [(name, g.card) for name, grants in assignment.containers.items() for g in grants]
    alone = len({card for _, card in given}) == len(given)
    return alone and fitting.issuperset(given)


def _says_mib(ask: wire.ContainerRequest) -> bool:
    return isinstance(ask.memory, wire.Size) and ask.memory.mib is not None
