"""The limits of a container, as its limits page has them.

Row i is the i-th card of the container's assignment. The webhook puts the same limits into the
container's environment, where they cannot change. The row records them, so that such a variable
sets no limit of its own and the page can raise the limit later.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from hami_py._native import LimitRow
from hami_py.model.cards import DriverMemory
from hami_py.model.limits import Mode
from hami_py.model.pods.wire import CardAllocation, NodeMode
from hami_py.node.levels import enforcement

_MIB = 1 << 20
_WHOLE = 100

Priority = Literal["low", "normal", "high"]


def priority_of(requested: int | None) -> Priority:
    """The priority that a pod's number means, like HAMi's: 0 is high, 1 normal, others low."""
    return "high" if requested == 0 else "normal" if requested in (None, 1) else "low"


def limit_rows(
    cards: Sequence[CardAllocation],
    injected: Sequence[CardAllocation],
    *,
    mode: NodeMode,
    share_mode: Mode,
    priority: Priority,
    driver_memory: Callable[[str], DriverMemory],
) -> list[LimitRow]:
    """The rows of a container's limits page.

    Args:
        cards: the container's cards, with the limits that are in force.
        injected: the same cards with the limits that the container's environment has.
        mode: how the node's cards are used.
        share_mode: how the shares hold.
        priority: the order among the containers that compete for a card.
        driver_memory: what the driver takes of the card with this UUID.
    """
    return [
        LimitRow(
            card.card,
            # An instance is the limit itself; the library reads and counts there.
            None if card.is_mig else memory_of(card, mode),
            share_of(card, mode),
            share_mode,
            priority,
            context_memory=driver_memory(card.card).context,
            granule=driver_memory(card.card).granule,
            injected_memory=in_environment.memory_mib * _MIB,
            injected_share=in_environment.cores if 0 < in_environment.cores < _WHOLE else None,
        )
        for card, in_environment in zip(cards, injected, strict=True)
    ]


def memory_of(card: CardAllocation, mode: NodeMode) -> int | None:
    """The bytes of the card that a container may use; None = no limit."""
    is_limited = enforcement(mode, mig=[card.is_mig]).level != "none"
    return card.memory_mib * _MIB if is_limited else None


def share_of(card: CardAllocation, mode: NodeMode) -> int | None:
    """The percentage of the card's time that a container may use; None = no limit."""
    is_timed = enforcement(mode, mig=[card.is_mig]).time_level == "lease"
    return card.cores if is_timed and 0 < card.cores < _WHOLE else None
