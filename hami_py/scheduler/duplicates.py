"""Cards that more than one node says it has.

The driver names a card once in the world, so one of these nodes is not what it says: a machine that
came back under another name, a card that moved, a copied Node object. Which of them is right nobody
here can tell, and to refuse pods for it would let one node take another's cards away. So the card's
room counts on each, and it is said.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Duplicates"]


class Duplicates:
    """Which cards are on which nodes, as far as more than one has them."""

    def __init__(self) -> None:
        self._cards: dict[str, frozenset[str]] = {}
        self._nodes: dict[str, tuple[str, ...]] = {}
        self._several: set[str] = set()

    def __len__(self) -> int:
        """How many cards are on more than one node."""
        return len(self._several)

    def set(self, node: str, uuids: Iterable[str]) -> list[str]:
        """The node has these cards and no others.

        Returns:
            Those of them that it had not before, and another node has, sorted.
        """
        before, now = self._cards.get(node, frozenset()), frozenset(uuids)
        for uuid in before - now:
            self._keep(uuid, [name for name in self._nodes[uuid] if name != node])
        for uuid in now - before:
            self._keep(uuid, [*self._nodes.get(uuid, ()), node])
        self._cards[node] = now
        if not now:
            del self._cards[node]
        return sorted((now - before) & self._several)

    def others(self, uuid: str, node: str) -> tuple[str, ...]:
        """The other nodes that say they have this card, sorted."""
        return tuple(name for name in self._nodes.get(uuid, ()) if name != node)

    def _keep(self, uuid: str, nodes: list[str]) -> None:
        self._nodes[uuid] = tuple(sorted(nodes))
        self._several.discard(uuid)
        if len(nodes) > 1:
            self._several.add(uuid)
        elif not nodes:
            del self._nodes[uuid]
