"""Two replicas of the extender: one kube-scheduler asks one of them, then the other."""

from __future__ import annotations

from typing import Any

import pytest

from cluster import failing, waiting
from cluster.conftest import StartControlPlane
from cluster.extended import asking, card, configuration, extender, node
from cluster.failing import NOBODY
from cluster.objects import NODES, PODS
from cluster.servers import free_ports
from hami_py.kube import ApiServer

#: Three nodes of four cards, on each of which three pods fit.
NAMES, CARDS, MIB, SHARE, FIT = "abc", 4, 10_000, 3000, 3


@pytest.mark.timeout(400)
def test_each_replica_counts_the_pods_of_the_other(control_plane: StartControlPlane) -> None:
    first, second = free_ports(2)
    cluster = asking(control_plane, first)
    api, server = cluster.api, ApiServer.connect(cluster.kubeconfig)
    seen: list[Any] = []
    with extender(server, first) as one, extender(server, second) as other:
        assert one.wait_until_ready(60)
        assert other.wait_until_ready(60)
        for name in NAMES:
            cards = [card(name, index, memory_mib=MIB) for index in range(CARDS)]
            api.create(NODES, node(name, cards))
        room = len(NAMES) * CARDS * FIT

        def agree() -> None:
            """Both have heard of everything: as after the time that a lease takes to change."""
            waiting.until(
                lambda: one.cluster.allocator.digest() == other.cluster.allocator.digest(),
                "both replicas agree",
            )

        expected = 0
        for turn, port in enumerate((first, second, first, second)):
            for number in range(10):
                api.create(PODS, failing.pod(f"p{turn}-{number}", SHARE))
            failing.until_bound(api, min(room, expected + 3))
            # In the midst of binding.
            cluster.reschedule(configuration(second if port == first else first))
            expected = min(room, expected + 10)
            failing.until_bound(api, expected)
            agree()
            seen.append(failing.given(api))
            # The replica that is no longer called has one call left.
            made = api.create(PODS, failing.pod(f"late{turn}", SHARE, schedulerName=NOBODY))
            late = [failing.bind(port, made, name) for name in NAMES]
            assert ("" in late) == (expected < room)
            expected = min(room, expected + 1)
            agree()
            seen.append(failing.given(api))
        assert len(failing.bound(api)) == room
    assert all(mib <= MIB for sums in seen for mib in sums.values())
    assert sorted(seen[-1].values()) == [FIT * SHARE] * len(NAMES) * CARDS
