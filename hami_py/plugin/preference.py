"""Which device IDs the kubelet should take, so that a container gets its assigned cards."""

from collections.abc import Collection, Sequence

from hami_py.node.devices import card_of


def preferred(
    available: Collection[str], required: Collection[str], size: int, cards: Sequence[str]
) -> list[str]:
    """Device IDs for a container, best first; ``cards`` is empty if they are unknown.

    Returns:
        ``size`` IDs: the required ones, one of each assigned card, and if these are not enough, IDs
        of further cards, of different ones as far as possible.
    """
    chosen = list(required)[:size]
    rest = sorted({*available} - {*chosen}, key=_order)
    for wanted in (cards, None):
        for device in rest:
            if len(chosen) == size:
                return chosen
            card = card_of(device)
            taken = [card_of(other) for other in chosen].count(card)
            # A container may have several MIG instances of a card.
            if taken < (1 if wanted is None else wanted.count(card)):
                chosen.append(device)
        rest = [device for device in rest if device not in chosen]
    return chosen + rest[: size - len(chosen)]


def _order(device: str) -> tuple[str, int, str]:
    """The order of a device: by card, then by number."""
    return (card_of(device), len(device), device)
