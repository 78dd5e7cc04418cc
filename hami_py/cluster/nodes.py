"""Nodes and their cards.

A node whose cards are not known gets no new pod. There are three reasons: its annotation is
invalid, the allocator refuses it, or a pod on it has cards and its assignment is invalid (another
version of this program wrote it). One such node must not keep the others from being followed.

A node that cannot be decoded at all is a different case. Its Kubernetes is unknown to us, so
probably all nodes are affected at once. Such a node keeps the cards that it was known to have.

A card has a unique UUID. If several nodes report the same one, at least one of them is wrong: a
machine that came back under another name, a card that was moved, or a copied Node object. The
extender cannot tell which, and refusing pods would let one node take another node's cards away. So
the card's room counts on each node, and a warning is logged.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hami_py.cluster.shared import SharedState
from hami_py.errors import HamiError, InvalidValue
from hami_py.kube import Undecoded
from hami_py.model import pods
from hami_py.model.pods import objects, wire
from hami_py.node.levels import with_levels

_log = logging.getLogger(__name__)

NO_CARDS = "no cards are registered"
"""The allocator's reason for a node that it does not have."""

_UNREADABLE_CARDS = "its cards cannot be read"
_UNKNOWN_CARDS = "its cards were published by another version"
_UNREADABLE_ASSIGNMENT = "the cards of a pod there cannot be read"
_UNKNOWN_ASSIGNMENT = "the cards of a pod there were assigned by another version"


class _Block(NamedTuple):
    """Why a node gets no new pod.

    Attributes:
        brief: for the condition of a pod, which its tenant reads: without names.
        why: with names and values.
    """

    brief: str
    why: str


class NodeSink:
    """Nodes, by name. The watch of nodes feeds it; the watch of pods blocks some for new pods."""

    def __init__(self, shared: SharedState) -> None:
        self.is_listed = False
        self.duplicates = Duplicates()
        self._shared = shared
        self._lock = threading.Lock()
        self._seen: dict[str, bytes] = {}
        # By node, its encoded state in the allocator.
        self._allocated: dict[str, bytes] = {}
        # By node, cordoned cards that it does not have.
        self._unknown_cordons: dict[str, tuple[str, ...]] = {}
        # By node, why its cards are not known.
        self._invalid: dict[str, _Block] = {}
        # By pod, the node that it blocks and why.
        self._blocked_by: dict[str, tuple[str, _Block]] = {}

    def __contains__(self, name: str) -> bool:
        """Whether the allocator can use this node."""
        return name in self._allocated

    def blocked(self) -> dict[str, str]:
        """By node, why it gets no new pod whatever its cards have free."""
        found: dict[str, list[str]] = {}
        for name, block in self._blocks():
            found.setdefault(name, []).append(block.why)
        return {name: "; ".join(whys) for name, whys in found.items()}

    def briefly_blocked(self) -> dict[str, str]:
        """The same in a few words, for the condition of a pod; of several reasons the first."""
        return {name: block.brief for name, block in reversed(self._blocks())}

    def _blocks(self) -> list[tuple[str, _Block]]:
        with self._lock:
            return [*self._invalid.items(), *self._blocked_by.values()]

    def replace(self, nodes: list[objects.Node], undecoded: Sequence[Undecoded] = ()) -> None:
        """Takes a whole list of nodes; nodes that are not in it were deleted."""
        there = {node.name for node in nodes} | {item.metadata.name for item in undecoded}
        for name in (self._seen.keys() | self._invalid.keys()) - there:
            self._set(name, None)
        for node in nodes:
            self.changed(node)
        for item in undecoded:
            self.undecoded(item)
        self.is_listed = True

    def changed(self, node: objects.Node) -> None:
        """Takes a node that is new or changed. Most changes do not concern its cards."""
        try:
            seen = pods.read_node(node, self._shared.settings)
            seen = with_levels(seen) if seen is not None else None
        except HamiError as error:
            self._unknown_cordons.pop(node.name, None)
            self._set(node.name, None, self._report(node.name, error))
        else:
            self._warn_of_cordons(node)
            self._set(node.name, seen)

    def _warn_of_cordons(self, node: objects.Node) -> None:
        """Warns once per mistake: a node changes every few seconds."""
        unknown = pods.unknown_cordons(node, self._shared.settings)
        if unknown and self._unknown_cordons.get(node.name) != unknown:
            _log.warning(
                "node %s: %s is cordoned but is not a card of this node; write a UUID as "
                "`nvidia-smi -L` shows it",
                *(node.name, ", ".join(unknown)),
            )
        self._unknown_cordons[node.name] = unknown

    def undecoded(self, item: Undecoded) -> None:
        """Takes a node that cannot be decoded: it keeps the cards that it was known to have."""
        with self._lock:
            name = item.metadata.name
            if name not in self._seen:
                why = f"the node cannot be decoded: {item.why}"
                self._invalid[name] = _Block(_UNREADABLE_CARDS, why)

    def deleted(self, node: objects.Node | Undecoded) -> None:
        """Takes the deletion of a node."""
        self._unknown_cordons.pop(node.metadata.name, None)
        self._set(node.metadata.name, None)

    def block(self, name: str, uid: str, why: str, error: HamiError | None = None) -> None:
        """Blocks a node for new pods: this pod has cards there, and it is unknown which."""
        is_unknown = isinstance(error, pods.UnknownVersion)
        brief = _UNKNOWN_ASSIGNMENT if is_unknown else _UNREADABLE_ASSIGNMENT
        with self._lock:
            self._blocked_by[uid] = (name, _Block(brief, why))
            self._update(name)

    def unblock(self, uid: str) -> None:
        """Ends what ``block`` did for this pod: its cards are known now, or it was deleted."""
        with self._lock:
            if (blocked := self._blocked_by.pop(uid, None)) is not None:
                self._update(blocked[0])

    def _report(self, name: str, error: HamiError) -> _Block:
        self._shared.report_invalid(f"node {name}", error)
        is_unknown = isinstance(error, pods.UnknownVersion)
        brief = _UNKNOWN_CARDS if is_unknown else _UNREADABLE_CARDS
        return _Block(brief, f"its cards are invalid: {error}")

    def _set(self, name: str, seen: wire.Node | None, block: _Block | None = None) -> None:
        with self._lock:
            self._invalid.pop(name, None)
            if block is not None:
                self._invalid[name] = block
            if seen is None:
                self._seen.pop(name, None)
            else:
                self._seen[name] = wire.encode(seen)
            self._update(name)
        self._warn_of_duplicates(name, seen)

    def _warn_of_duplicates(self, name: str, seen: wire.Node | None) -> None:
        added = self.duplicates.set(name, (card.uuid for card in seen.cards) if seen else ())
        if added:
            others = {other for uuid in added for other in self.duplicates.others(uuid, name)}
            _log.warning(
                "node %s: %d of its cards (for example %s) are also reported by node %s and count "
                "on each; delete the node that no longer exists or whose object was copied",
                *(name, len(added), added[0], ", ".join(sorted(others))),
            )

    def _update(self, name: str) -> None:
        is_blocked = any(blocked == name for blocked, _ in self._blocked_by.values())
        wanted = None if is_blocked else self._seen.get(name)
        if wanted == self._allocated.get(name):
            return
        if wanted is not None:
            try:
                self._shared.allocator.set_node(wanted)
            except InvalidValue as error:
                self._invalid[name] = self._report(name, error)
            else:
                self._allocated[name] = wanted
                self._shared.requeuer.changed()
                return
        if self._allocated.pop(name, None) is not None:
            self._shared.allocator.remove_node(name)


class Duplicates:
    """Cards that more than one node reports."""

    def __init__(self) -> None:
        self._cards: dict[str, frozenset[str]] = {}
        self._nodes: dict[str, tuple[str, ...]] = {}
        self._several: set[str] = set()

    def __len__(self) -> int:
        """The number of cards on more than one node."""
        return len(self._several)

    def set(self, node: str, uuids: Iterable[str]) -> list[str]:
        """Sets all the cards of a node.

        Returns:
            The cards that are new on this node and that another node has, sorted.
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
        """The other nodes that report this card, sorted."""
        return tuple(name for name in self._nodes.get(uuid, ()) if name != node)

    def _keep(self, uuid: str, nodes: list[str]) -> None:
        self._nodes[uuid] = tuple(sorted(nodes))
        self._several.discard(uuid)
        if len(nodes) > 1:
            self._several.add(uuid)
        elif not nodes:
            del self._nodes[uuid]
