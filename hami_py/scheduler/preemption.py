"""Whom to evict from a node so that a pod gets its cards.

kube-scheduler has chosen by what it sees itself, so all of those stay chosen. Where that is not
enough, because room is on several cards for one, others have to go as well: as few violated
disruption budgets as can be, then those of the lowest priority, then few.

There may not be time enough for all nodes. The pod's next try goes on where one has ended, or the
same nodes would be left each time.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping

import msgspec

from hami_py.model.pods import wire
from hami_py.scheduler.cluster import Cluster
from hami_py.scheduler.extender_api import MetaPod, MetaVictims, PreemptArgs
from hami_py.scheduler.pods import Placed

__all__ = ["LeftOff", "proposed", "victims"]


class LeftOff:
    """At which node looking for victims ended, by pod. Threads may share it.

    Args:
        most: pods that are remembered; of more those go that were not tried for longest.
    """

    def __init__(self, most: int = 1000) -> None:
        self._most = most
        self._nodes: dict[str, str] = {}
        self._lock = threading.Lock()

    def order(self, uid: str, nodes: Iterable[str]) -> list[str]:
        """The nodes by name, from where the pod's last try ended and round to there."""
        names = sorted(nodes)
        with self._lock:
            begin = bisect_left(names, self._nodes.get(uid, ""))
        return names[begin:] + names[:begin]

    def ended(self, uid: str, node: str | None) -> None:
        """That node was not looked at any more; None: all were."""
        with self._lock:
            self._nodes.pop(uid, None)
            if node is not None:
                self._nodes[uid] = node
            if len(self._nodes) > self._most:
                del self._nodes[next(iter(self._nodes))]


def proposed(args: PreemptArgs) -> dict[str, MetaVictims]:
    """By node, whom kube-scheduler has chosen."""
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
    left_off: LeftOff,
) -> dict[str, MetaVictims]:
    """By node, those chosen and no more others than make room; nodes where there is no way are out.

    Args:
        cluster: what is known.
        request: of the pod that is to come.
        chosen: those who go in any case, by node.
        now_ns: the time of the question: what it takes counts to the pod's namespace.
        left_off: where earlier tries ended.
    """
    here = cluster.pods.placed_on(chosen)
    uid, ended = request.pod.uid, None
    found: dict[str, MetaVictims] = {}
    for node in left_off.order(uid, chosen):
        if cluster.allocator.preemption_is_over(uid, now_ns):
            ended = node
        those = _on_node(cluster, request, node, chosen[node], here=here[node], now_ns=now_ns)
        if those is not None:
            found[node] = those
        if ended is not None:
            # It was asked about all the same: so the pod is woken when there is time again.
            break
    left_off.ended(uid, ended)
    return found


def _on_node(
    cluster: Cluster,
    request: wire.PodRequest,
    node: str,
    chosen: MetaVictims,
    *,
    here: Mapping[str, Placed],
    now_ns: int,
) -> MetaVictims | None:
    uids = [pod.uid for pod in chosen.pods or []]
    left = cluster.budgets.left()
    for uid in uids:
        if uid in here:
            left.spend(here[uid])
    candidates = [
        {
            "uid": uid,
            "priority": pod.priority,
            "pdb_violating": left.protects(pod),
            "chosen": uid in uids,
        }
        for uid, pod in here.items()
    ]
    asked = wire.encode(request)
    needed = cluster.allocator.victims(asked, node, msgspec.json.encode(candidates), now_ns)
    if needed is None:
        return None
    added = [uid for uid in needed if uid not in uids]
    # kube-scheduler has counted its own.
    violations = sum(left.spend(here[uid]) for uid in added)
    return MetaVictims(
        [MetaPod(uid) for uid in dict.fromkeys([*uids, *added])],
        chosen.num_pdb_violations + violations,
    )
