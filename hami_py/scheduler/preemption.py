"""Preemption: the pods to evict from a node so that a pod gets its cards.

kube-scheduler has chosen victims by the resources that it knows, and all of them stay victims. That
may not be enough, because their cards may not be the right ones: room on several cards does not
help a pod that needs one card. Then more victims are added: first as few violations of disruption
budgets as possible, then the lowest priorities, then as few pods as possible.

There may not be enough time for all nodes. The next attempt for the same pod continues with the
node where the last one stopped; otherwise it would always skip the same nodes.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping

import msgspec

from hami_py.cluster.pods import Placed
from hami_py.cluster.state import Cluster
from hami_py.model.pods import wire
from hami_py.scheduler.extender_api import MetaPod, MetaVictims, PreemptArgs


class LastNodes:
    """By pod, the node where the search for victims stopped. Threads may share it.

    Args:
        most: the number of pods to remember; the pods with the oldest attempts are forgotten.
    """

    def __init__(self, most: int = 1000) -> None:
        self._most = most
        self._nodes: dict[str, str] = {}
        self._lock = threading.Lock()

    def order(self, uid: str, nodes: Iterable[str]) -> list[str]:
        """The nodes by name, beginning where the pod's last attempt stopped."""
        names = sorted(nodes)
        with self._lock:
            begin = bisect_left(names, self._nodes.get(uid, ""))
        return names[begin:] + names[:begin]

    def stopped(self, uid: str, node: str | None) -> None:
        """Records the first node that was not searched; ``None``: all were."""
        with self._lock:
            self._nodes.pop(uid, None)
            if node is not None:
                self._nodes[uid] = node
            if len(self._nodes) > self._most:
                del self._nodes[next(iter(self._nodes))]


def proposed(args: PreemptArgs) -> dict[str, MetaVictims]:
    """By node, the victims that kube-scheduler has chosen."""
    if args.meta_victims is not None:
        return args.meta_victims
    return {
        node: MetaVictims(
            [MetaPod(pod.uid) for pod in victims.pods or []], victims.num_pdb_violations
        )
        for node, victims in (args.victims or {}).items()
    }


def victims(
    cluster: Cluster,
    request: wire.PodRequest,
    chosen: Mapping[str, MetaVictims],
    now_ns: int,
    last_nodes: LastNodes,
) -> dict[str, MetaVictims]:
    """By node, the chosen victims and those to add; nodes where that makes no room are left out.

    The search counts towards the time of the pod's namespace, from ``now_ns`` on.
    """
    placed = cluster.pods.placed_on(chosen)
    uid, stopped = request.pod.uid, None
    found: dict[str, MetaVictims] = {}
    for node in last_nodes.order(uid, chosen):
        if cluster.allocator.preemption_is_over(uid, now_ns):
            stopped = node
        those = _on_node(cluster, request, node, chosen[node], placed=placed[node], now_ns=now_ns)
        if those is not None:
            found[node] = those
        if stopped is not None:
            # This call makes the allocator report when the namespace has time again, so that the
            # pod is requeued then.
            break
    last_nodes.stopped(uid, stopped)
    return found


def _on_node(
    cluster: Cluster,
    request: wire.PodRequest,
    node: str,
    chosen: MetaVictims,
    *,
    placed: Mapping[str, Placed],
    now_ns: int,
) -> MetaVictims | None:
    uids = [pod.uid for pod in chosen.pods or []]
    remaining = cluster.budgets.remaining()
    for uid in uids:
        if uid in placed:
            remaining.evict(placed[uid])
    candidates = [
        {
            "uid": uid,
            "priority": pod.priority,
            "pdb_violating": remaining.protects(pod),
            "chosen": uid in uids,
        }
        for uid, pod in placed.items()
    ]
    encoded = wire.encode(request)
    needed = cluster.allocator.victims(encoded, node, msgspec.json.encode(candidates), now_ns)
    if needed is None:
        return None
    added = [uid for uid in needed if uid not in uids]
    # kube-scheduler has counted the violations of its own victims.
    violations = sum(remaining.evict(placed[uid]) for uid in added)
    return MetaVictims(
        [MetaPod(uid) for uid in dict.fromkeys([*uids, *added])],
        chosen.num_pdb_violations + violations,
    )
