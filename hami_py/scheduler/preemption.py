"""Whom to evict from a node so that a pod gets its cards.

kube-scheduler has chosen by what it sees itself, so all of those stay chosen. Where that is not
enough, because room is on several cards for one, others have to go as well: as few violated
disruption budgets as can be, then those of the lowest priority, then few.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from hami_py.model.pods import wire
from hami_py.scheduler.cluster import Cluster, Placed
from hami_py.scheduler.wire import MetaPod, MetaVictims, PreemptArgs

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
    cluster: Cluster, request: wire.Request, chosen: Mapping[str, MetaVictims]
) -> dict[str, MetaVictims]:
    """By node, those chosen and no more others than make room; nodes where there is no way are out.

    Args:
        cluster: what is known.
        request: of the pod that is to come.
        chosen: those who go in any case, by node.
    """
    here = cluster.pods.placed_on(chosen)
    found = {
        node: _on_node(cluster, request, node, those, here[node])
        for node, those in sorted(chosen.items())
    }
    return {node: those for node, those in found.items() if those is not None}


def _on_node(
    cluster: Cluster,
    request: wire.Request,
    node: str,
    chosen: MetaVictims,
    here: Mapping[str, Placed],
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
    needed = cluster.allocator.victims(wire.encode(request), node, msgspec.json.encode(candidates))
    if needed is None:
        return None
    added = [uid for uid in needed if uid not in uids]
    # kube-scheduler has counted its own.
    violations = sum(left.spend(here[uid]) for uid in added)
    return MetaVictims(
        [MetaPod(uid) for uid in dict.fromkeys([*uids, *added])],
        chosen.num_pdb_violations + violations,
    )
