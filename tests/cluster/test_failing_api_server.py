"""The API server, or the way to it, is away for a while."""

from __future__ import annotations

import logging
import time

import pytest

from cluster import failing, waiting
from cluster.conftest import StartControlPlane
from cluster.extended import asking, card, extended, extender, node
from cluster.objects import NODES, PODS
from cluster.servers import free_ports
from hami_py.model import pods
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


@pytest.mark.timeout(300)
def test_a_watch_after_a_long_outage_is_listed_again(
    control_plane: StartControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    """Restart an API server: only then does it answer a watch with 410 Gone, as real ones do."""
    (port,) = free_ports(1)
    cluster = asking(control_plane, port)
    api = cluster.api
    with failing.Cable(cluster) as cable, extender(cable.server(), port) as scheduler:
        assert scheduler.wait_until_ready(60)
        for name in "ab":
            api.create(NODES, node(name, [card(name, 0)]))
        for name in ("goes", "stays"):
            api.create(PODS, failing.pod(name, 10_000))
        placed = failing.until_bound(api, 2)
        cable.cut()
        # A pod goes, its card is replaced, another replica gives the new one away, and a node
        # comes: none of it is told.
        api.delete(f"{PODS}/goes", grace_seconds=0)
        waiting.gone(api, f"{PODS}/goes")
        lost = placed["goes"]
        written = {pods.annotations.CARDS: pods.encode_cards((card(lost, 7),))}
        api.patch(f"{NODES}/{lost}", {"metadata": {"annotations": written}})
        api.create(NODES, node("c", [card("c", 0)]))
        made = api.create(PODS, failing.pod("by-another", 10_000, schedulerName=failing.NOBODY))
        failing.bind_by_hand(api, made, lost, f"GPU-{lost}-7", 10_000)
        # After a restart the API server does not know the old versions.
        cluster.apiserver.stop()
        cluster.apiserver.start()
        cluster.compact()
        with caplog.at_level(logging.INFO, "hami_py.kube.follower"):
            probe = api.create(PODS, failing.pod("probe", 10_000, schedulerName=failing.NOBODY))
            cable.fix()
            # kube-scheduler has heard of the node before us, and would not ask again.
            waiting.until(
                lambda: failing.fits(port, probe, "a", "b", "c") == ["c"], "node c is known"
            )
            for number in range(3):
                api.create(PODS, failing.pod(f"new{number}", 10_000))
            failing.until_bound(api, 3)
            waiting.until(
                lambda: [r for r in caplog.messages if "pods: listed again: 410" in r],
                "the watch of pods has expired",
            )
        where = failing.bound(api)
        assert where["by-another"] == lost
        assert where["stays"] == placed["stays"]
        (new,) = where.keys() - {"by-another", "stays"}
        assert where[new] == "c"
        kept = placed["stays"]
        assert failing.given(api) == {
            "GPU-c-0": 10_000,
            f"GPU-{kept}-0": 10_000,
            f"GPU-{lost}-7": 10_000,
        }
        asked = {"Pod": probe, "NodeNames": ["a", "b", "c"]}
        waiting.until(
            lambda: sorted(failing.ask(port, "filter", asked)["FailedNodes"]) == ["a", "b", "c"],
            "all cards are known to be given",
        )
