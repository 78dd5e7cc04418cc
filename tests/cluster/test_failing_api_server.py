"""The API server, or the way to it, is away for a while."""

from __future__ import annotations

import time

import pytest

from cluster import failing, waiting
from cluster.conftest import StartControlPlane
from cluster.extended import card, extended, node
from cluster.objects import NODES, PODS
from support.tiers import amount


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seconds", sorted({3, amount("seconds without an API server")}))
def test_earlier_bindings_count_after_the_outage(
    control_plane: StartControlPlane, seconds: int
) -> None:
    """Two nodes of two cards, on each of which two pods fit."""
    with extended(control_plane) as (cluster, scheduler):
        api, port = cluster.api, scheduler.server.port
        for name in "ab":
            api.create(NODES, node(name, [card(name, 0), card(name, 1)]))
        for number in range(5):
            api.create(PODS, failing.pod(f"before{number}", 4000))
        before = failing.until_bound(api, 5)
        by_hand = api.create(PODS, failing.pod("by-hand", 4000, schedulerName=failing.NOBODY))
        cluster.apiserver.stop()
        # kube-scheduler would do the same: ask, bind, and hear that it did not work.
        (target, *_) = failing.fits(port, by_hand, "a", "b")
        assert "no answer" in failing.bind(port, by_hand, target)
        time.sleep(seconds)
        cluster.apiserver.start()
        assert failing.bind(port, by_hand, target) == ""
        for number in range(6):
            api.create(PODS, failing.pod(f"after{number}", 4000))
        assert before.items() <= failing.until_bound(api, 8).items()
        left = next(f"after{n}" for n in range(6) if f"after{n}" not in failing.bound(api))
        waiting.unschedulable(api, left, "2 too little memory")
        assert sorted(failing.given(api).values()) == [8000] * 4
        assert len(failing.bound(api)) == 8
