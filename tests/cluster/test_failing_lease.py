"""kube-scheduler does not notice at once that it has lost its lease, and binds until it does."""

from __future__ import annotations

import pytest

from cluster import failing, waiting
from cluster.conftest import StartControlPlane
from cluster.extended import asking, card, extender, node
from cluster.failing import NOBODY
from cluster.objects import NODES, PODS
from cluster.servers import free_ports
from hami_py.kube import ApiServer

PLACE = ("kube-system", "paused-leader")
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/paused-leader"

#: It looks at its lease every 40 s, and gives up 50 s after it renewed it last.
ELECTION = {
    "leaderElect": True,
    "resourceNamespace": PLACE[0],
    "resourceName": PLACE[1],
    "leaseDuration": "60s",
    "renewDeadline": "50s",
    "retryPeriod": "40s",
}

MIB = 10_000


@pytest.mark.timeout(300)
def test_a_paused_leader_binds_nothing_beside_the_next(
    control_plane: StartControlPlane,
) -> None:
    """The test does not wait for the lease to expire: only the change of the holder matters."""
    first, second = free_ports(2)
    cluster = asking(control_plane, first, leaderElection=ELECTION)
    api, server = cluster.api, ApiServer.connect(cluster.kubeconfig)
    with (
        extender(server, first, lease=PLACE) as ours,
        extender(server, second, lease=PLACE, lease_holder="other") as theirs,
    ):
        assert ours.wait_until_ready(60)
        assert theirs.wait_until_ready(60)
        api.create(NODES, node("a", [card("a", 0, memory_mib=MIB)]))
        # kube-scheduler calls itself by this host's name, and so does the extender.
        api.create(PODS, failing.pod("before", 1_000))
        waiting.bound(api, "before")

        cluster.scheduler.pause()
        failing.take_lease(api, LEASE, "other_c0ffee")
        made = api.create(PODS, failing.pod("theirs", 5_000, schedulerName=NOBODY))
        assert "the previous one may still be binding" in failing.bind(second, made, "a")
        waiting.until(lambda: failing.bind(second, made, "a") == "", "the next holder binds")

        api.create(PODS, failing.pod("late", 4_000))
        cluster.scheduler.resume()
        said = waiting.unschedulable(api, "late")
        assert "other_c0ffee holds it, not the kube-scheduler on" in said
        mine = api.create(PODS, failing.pod("mine", 4_000, schedulerName=NOBODY))
        assert failing.bind(second, mine, "a") == ""
        assert failing.bound(api) == dict.fromkeys(("before", "theirs", "mine"), "a")
        assert failing.given(api) == {"GPU-a-0": MIB}
