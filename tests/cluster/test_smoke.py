"""The control plane as a whole on a real Kubernetes: one pod is placed, one is refused."""

from __future__ import annotations

import pytest

from cluster import objects, waiting
from cluster.api import ApiError
from cluster.conftest import StartControlPlane
from cluster.deployed import apply, create_soon, extender, webhook
from cluster.extended import assignment, card, configuration, node
from cluster.objects import NODES, PODS
from cluster.servers import free_ports

pytestmark = pytest.mark.programs("kubectl")


def test_a_pod_is_placed_and_another_is_refused(
    control_plane: StartControlPlane, address: str
) -> None:
    """Takes seconds for a Kubernetes; all other tests of deploy/ are in later tiers."""
    (port,) = free_ports(1)
    profiles = [{"schedulerName": "hami-scheduler"}]
    cluster = control_plane(scheduler={**configuration(port), "profiles": profiles})
    apply(cluster)
    cluster.api.create(NODES, node("a", [card("a", 0), card("a", 1)]))
    with extender(cluster, port), webhook(cluster, address):
        create_soon(cluster, objects.pod("one", {"nvidia.com/gpumem": 3000}))
        waiting.bound(cluster.api, "one")
        (grant,) = assignment(cluster.api, "one").containers["main"]
        assert grant.memory_mib == 3000
        # No card has as much, although all together do: only the extender sees that.
        cluster.api.create(PODS, objects.pod("two", {"nvidia.com/gpumem": 12_000}))
        waiting.unschedulable(cluster.api, "two", "less memory than requested")
        # The webhook refuses what contradicts itself.
        with pytest.raises(ApiError, match="denied the request"):
            cluster.api.create(PODS, objects.pod("three", {"nvidia.com/gpucores": 101}))
