"""Nodes and their cards, as the allocator is to see them.

Nothing new goes to a node whose cards nobody can tell: its annotation cannot be read, the allocator
refuses it, or a pod there has cards and it cannot be read which (another version of us wrote it).
One such node must not keep the others from being followed.

A node that cannot even be decoded is another matter: that is a Kubernetes that we do not know, and
would be all of them at once. It keeps the cards that it was known to have.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hami_py.errors import HamiError, InvalidValue
from hami_py.kube import Undecoded
from hami_py.model import pods
from hami_py.model.pods import objects, wire
from hami_py.scheduler.duplicates import Duplicates

if TYPE_CHECKING:
    from hami_py.scheduler.cluster import Cluster

__all__ = ["NodeSink"]

_log = logging.getLogger(__name__)


class NodeSink:
    """Nodes, by name. The watch of nodes tells of them, that of pods bars some.

    Attributes:
        duplicates: cards that several of them say they have.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.is_listed = False
        self.duplicates = Duplicates()
        self._cluster = cluster
        self._lock = threading.Lock()
        self._seen: dict[str, bytes] = {}
        # As the allocator has them.
        self._known: dict[str, bytes] = {}
        # Cordoned cards that are not there, by node.
        self._unknown_cordons: dict[str, tuple[str, ...]] = {}
        # Why its cards cannot be told, by node.
        self._unreadable: dict[str, str] = {}
        # By pod, the node that it bars and why.
        self._bars: dict[str, tuple[str, str]] = {}

    def __contains__(self, name: str) -> bool:
        """Whether it is there, with cards to give."""
        return name in self._known

    def barred(self) -> dict[str, str]:
        """By node, why it gets nothing new, whatever its cards have free."""
        with self._lock:
            whys = [*self._unreadable.items(), *self._bars.values()]
        found: dict[str, list[str]] = {}
        for name, why in whys:
            found.setdefault(name, []).append(why)
        return {name: "; ".join(reasons) for name, reasons in found.items()}

    def replace(self, nodes: list[objects.Node], undecoded: Sequence[Undecoded] = ()) -> None:
        """These are all the nodes."""
        there = {node.name for node in nodes} | {item.metadata.name for item in undecoded}
        for name in (self._seen.keys() | self._unreadable.keys()) - there:
            self._take(name, None)
        for node in nodes:
            self.changed(node)
        for item in undecoded:
            self.undecoded(item)
        self.is_listed = True

    def changed(self, node: objects.Node) -> None:
        """A node came or changed. Most changes are none of ours: its heartbeat, its images."""
        try:
            seen = pods.read_node(node, self._cluster.settings)
        except HamiError as error:
            self._unknown_cordons.pop(node.name, None)
            self._take(node.name, None, self._cannot_read(node.name, error))
        else:
            self._warn(node)
            self._take(node.name, seen)

    def _warn(self, node: objects.Node) -> None:
        """Once: a node changes every few seconds, and a typing error stays."""
        unknown = pods.unknown_cordons(node, self._cluster.settings)
        if unknown and self._unknown_cordons.get(node.name) != unknown:
            _log.warning(
                "node %s: %s is cordoned and not one of its cards; write a UUID as `nvidia-smi -L` "
                "shows it",
                *(node.name, ", ".join(unknown)),
            )
        self._unknown_cordons[node.name] = unknown

    def undecoded(self, item: Undecoded) -> None:
        """A node is there and cannot be decoded: it has the cards that it was known to have."""
        with self._lock:
            name = item.metadata.name
            if name not in self._seen:
                self._unreadable[name] = f"the node cannot be decoded: {item.why}"

    def gone(self, node: objects.Node | Undecoded) -> None:
        """A node was deleted."""
        self._unknown_cordons.pop(node.metadata.name, None)
        self._take(node.metadata.name, None)

    def bar(self, name: str, uid: str, why: str) -> None:
        """A pod has cards of this node, and it is not known which, for this reason."""
        with self._lock:
            self._bars[uid] = (name, why)
            self._settle(name)

    def unbar(self, uid: str) -> None:
        """It is known now, or the pod is gone."""
        with self._lock:
            if (barred := self._bars.pop(uid, None)) is not None:
                self._settle(barred[0])

    def _cannot_read(self, name: str, error: HamiError) -> str:
        self._cluster.unreadable(f"node {name}", error)
        return f"its cards cannot be read: {error}"

    def _take(self, name: str, seen: wire.Node | None, why: str | None = None) -> None:
        with self._lock:
            self._unreadable.pop(name, None)
            if why is not None:
                self._unreadable[name] = why
            if seen is None:
                self._seen.pop(name, None)
            else:
                self._seen[name] = wire.encode(seen)
            self._settle(name)
        self._compare(name, seen)

    def _compare(self, name: str, seen: wire.Node | None) -> None:
        added = self.duplicates.set(name, (card.uuid for card in seen.cards) if seen else ())
        if added:
            others = {other for uuid in added for other in self.duplicates.others(uuid, name)}
            _log.warning(
                "node %s: %d of its cards, %s for one, are said to be on node %s, too, and count "
                "on each; delete the node that is no more, or whose object was copied",
                *(name, len(added), added[0], ", ".join(sorted(others))),
            )

    def _settle(self, name: str) -> None:
        is_barred = any(barred == name for barred, _ in self._bars.values())
        wanted = None if is_barred else self._seen.get(name)
        if wanted == self._known.get(name):
            return
        if wanted is not None:
            try:
                self._cluster.allocator.set_node(wanted)
            except InvalidValue as error:
                self._unreadable[name] = self._cannot_read(name, error)
            else:
                self._known[name] = wanted
                self._cluster.waker.changed()
                return
        if self._known.pop(name, None) is not None:
            self._cluster.allocator.remove_node(name)
