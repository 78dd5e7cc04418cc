"""The cards that preemption frees, held for the pod that the victims were evicted for.

kube-scheduler evicts the victims and tries the preemptor again when they are gone. It tries other
pods meanwhile, and its nomination of the preemptor counts only sums over the node. So a pod of
lower priority could get the free card, and the preemptor would evict another pod.

``preempt`` may name many nodes, and kube-scheduler does not tell the extender which one it chooses.
The first victim that terminates or is gone shows the node. The hold begins before that victim's
cards are free, because the same watch reports both. It ends when the preemptor is bound or deleted,
or some time after the last victim. It does not end when kube-scheduler removes the nomination:
kube-scheduler may know that a victim is gone before the extender does, and tries again later.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from hami_py._native import Allocator
from hami_py.cluster.requeue import Requeuer
from hami_py.model.pods import wire


@dataclass
class _Preemptor:
    """A pod for which victims were named.

    Attributes:
        since_ns: when a victim was last known to terminate; at first, when victims were named.
        node: where they are evicted; ``None``: not known yet.
        terminating: the victims that are terminating and not gone yet.
    """

    request: wire.PodRequest
    node_of: Mapping[str, str]
    since_ns: int
    node: str | None = None
    terminating: set[str] = field(default_factory=set)


class Preemptors:
    """The pods for which victims were named, by UID. Threads may share it."""

    def __init__(self, allocator: Allocator, requeuer: Requeuer) -> None:
        self._allocator = allocator
        self._requeuer = requeuer
        self._lock = threading.Lock()
        self._pods: dict[str, _Preemptor] = {}

    def named(
        self, request: wire.PodRequest, victims: Mapping[str, Iterable[str]], now_ns: int
    ) -> None:
        """Records the victims of a pod, by node, before kube-scheduler evicts those of one node."""
        uid = request.pod.uid
        node_of = {victim: node for node, those in victims.items() for victim in those}
        with self._lock:
            self._end(uid)
            self._pods[uid] = _Preemptor(request, node_of, now_ns)

    def terminates(self, uid: str) -> None:
        """Records that a pod is terminating."""
        with self._lock:
            for each in self._evicted(uid):
                each.terminating.add(uid)

    def is_gone(self, uid: str) -> None:
        """Records that a pod is gone, before the allocator removes it."""
        with self._lock:
            for each in self._evicted(uid):
                each.terminating.discard(uid)

    def forget(self, uid: str) -> None:
        """Removes a preemptor that is bound or deleted."""
        with self._lock:
            self._pods.pop(uid, None)

    def expire(self, now_ns: int, lasts_ns: int) -> None:
        """Ends the holds whose last victim has been gone for ``lasts_ns``."""
        with self._lock:
            for uid, each in tuple(self._pods.items()):
                if each.terminating:
                    each.since_ns = now_ns
                if now_ns - each.since_ns >= lasts_ns:
                    self._end(uid)
                else:
                    # An attempt may have failed whose own hold has ended.
                    self._hold(each)

    def _evicted(self, uid: str) -> Iterator[_Preemptor]:
        """The preemptors of this victim, once cards are held for them; the first chooses first."""
        for each in self._pods.values():
            node = each.node_of.get(uid)
            if node is not None and each.node in (None, node):
                each.node = node
                self._hold(each)
                yield each

    def _hold(self, each: _Preemptor) -> None:
        if each.node is not None:
            victims = [uid for uid, node in each.node_of.items() if node == each.node]
            encoded = wire.encode(each.request)
            self._allocator.hold_freed(encoded, each.node, victims, each.since_ns)

    def _end(self, uid: str) -> None:
        each = self._pods.pop(uid, None)
        if each is not None and each.node is not None:
            self._allocator.end_hold(uid)
            self._requeuer.changed()
