"""Pods that were refused, and what kube-scheduler has no event for."""

from __future__ import annotations

import pytest

from cluster import failing, waiting
from cluster.conftest import StartControlPlane
from cluster.extended import card, extended, node
from cluster.objects import NODES, PODS, QUOTAS


@pytest.mark.timeout(200)
def test_a_raised_quota_admits_pending_pods(control_plane: StartControlPlane) -> None:
    with extended(control_plane) as (cluster, scheduler):
        api = cluster.api
        quota = {"metadata": {"name": "q"}, "spec": {"hard": {"limits.nvidia.com/gpumem": "1000"}}}
        api.create(QUOTAS, quota)
        # A pod that is quicker than the watch of quotas is let in.
        known = scheduler.cluster.quotas.limits
        waiting.until(lambda: known("default"), "the extender knows the quota")
        api.create(NODES, node("a", [card("a", 0)]))
        api.create(PODS, failing.pod("waits", 2000))
        waiting.unschedulable(api, "waits", "quota q")
        api.patch(f"{QUOTAS}/q", {"spec": {"hard": {"limits.nvidia.com/gpumem": "2000"}}})
        waiting.bound(api, "waits")
