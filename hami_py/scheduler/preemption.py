"""Whom to evict from a node so that a pod gets its cards.

kube-scheduler has chosen by what it sees itself, so all of those stay chosen. Where that is not
enough, because room is on several cards for one, others have to go as well: as few violated
disruption budgets as can be, then those of the lowest priority, then few.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from hami_py.model.pods import wire
from hami_py.scheduler.cluster import Cluster
from hami_py.scheduler.extender_api import MetaPod, MetaVictims, PreemptArgs
from hami_py.scheduler.pods import Placed

__all__ = ["proposed", "victims"]


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
    cluster: Cluster, request: wire.Request, chosen: Mapping[str, MetaVictims], now_ns: int
) -> dict[str, MetaVictims]:
    """By node, those chosen and no more others than make room; nodes where there is no way are out.

    Args:
        cluster: what is known.
        request: of the pod that is to come.
        chosen: those who go in any case, by node.
        now_ns: the time of the question: what it takes counts to the pod's namespace.
    """
    here = cluster.pods.placed_on(chosen)
    found = {
        node: _on_node(cluster, request, node, those, here=here[node], now_ns=now_ns)
        for node, those in sorted(chosen.items())
    }
    return {node: those for node, those in found.items() if those is not None}


def _on_node(
    cluster: Cluster,
    request: wire.Request,
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
