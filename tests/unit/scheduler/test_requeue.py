"""A rejected pod is retried when the reason has changed, and no pod is retried otherwise."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from hami_py.cluster import requeue
from hami_py.cluster.budgets import BudgetSink
from hami_py.cluster.requeue import Requeuer, storage_class_touch
from hami_py.kube import ApiServer
from hami_py.kube.errors import Unavailable
from hami_py.model.pods import objects
from unit.scheduler.small import Small, node


class Server:
    def __init__(self) -> None:
        self.touched = threading.Semaphore(0)
        self.failing = 0
        self.requeuers: list[Requeuer] = []

    def requeuer(self) -> Requeuer:
        """It ends with the test."""
        made = Requeuer(storage_class_touch(cast(ApiServer, self), "hami-wake"))
        self.requeuers.append(made)
        return made

    def is_touched(self) -> bool:
        return self.touched.acquire(timeout=60)

    def stays_untouched(self) -> bool:
        return not self.touched.acquire(timeout=0.3)

    def patch(self, path: str, body: Any, kind: str, *, deadline_s: float) -> bytes:
        assert path == "/apis/storage.k8s.io/v1/storageclasses/hami-wake"
        if self.failing:
            self.failing -= 1
            raise Unavailable("PATCH", "away", "later")
        self.touched.release()
        return b"{}"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(requeue, "_PAUSE_S", 0.01)
    monkeypatch.setattr(requeue, "_FAILED_S", 0.01)
    server = Server()
    yield server
    for each in server.requeuers:
        each.stop()


def small(server: Server) -> Small:
    made = Small(nodes="a").listed()
    made.cluster.requeuer = server.requeuer()
    return made


def refused(made: Small, name: str) -> None:
    made.create(name)
    assert made.fits(name, "a", "b") == []


def full(server: Server) -> Small:
    """Node a, with a pod on its one card, and a pod that was refused for that."""
    made = small(server)
    made.create("first")
    made.told("first")
    assert made.bind("first", "a") == ""
    made.told("first")
    refused(made, "next")
    made.cluster.requeuer.start()
    return made


@pytest.mark.parametrize("what", ["a pod is gone", "a card is there", "a quota is there"])
def test_freed_room_requeues(server: Server, what: str) -> None:
    made = full(server)
    quota = objects.ResourceQuota(
        objects.Metadata(name="q", namespace="ml"),
        objects.QuotaSpec({"limits.nvidia.com/gpu": "9"}),
    )
    if what == "a pod is gone":
        made.cluster.pods.deleted(made.seen("first"))
    elif what == "a card is there":
        made.cluster.nodes.changed(node("b", 1))
    else:
        made.cluster.quotas.changed(quota)
    assert server.is_touched()
    # No pod was rejected since.
    made.cluster.nodes.changed(node("c", 1))
    assert server.stays_untouched()


def test_a_deleted_quota_requeues(server: Server) -> None:
    made = small(server)
    metadata = objects.Metadata(name="q", namespace="ml")
    quota = objects.ResourceQuota(metadata, objects.QuotaSpec({"limits.nvidia.com/gpu": "0"}))
    made.cluster.quotas.changed(quota)
    refused(made, "next")
    made.cluster.requeuer.start()
    made.cluster.quotas.deleted(quota)
    assert server.is_touched()
    assert made.fits("next", "a") == ["a"]


def test_completed_init_containers_requeue(server: Server) -> None:
    """To kube-scheduler they count for as long as the pod is there: it has no event for that."""
    made = small(server)
    made.create("first", 2000)
    spec = made.server.pods["first"]["spec"]
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8000"}
    spec["initContainers"] = [{"name": "init", "resources": {"limits": limits}}]
    spec["restartPolicy"] = "Never"
    assert made.bind("first", "a") == ""
    made.told("first")
    made.create("next", 6000)
    assert made.fits("next", "a") == []
    made.cluster.requeuer.start()
    done = [{"type": "Initialized", "status": "True"}]
    made.server.pods["first"]["status"] = {"phase": "Running", "conditions": done}
    made.told("first")
    assert server.is_touched()
    assert made.fits("next", "a") == ["a"]


def test_a_change_during_the_filter_requeues(server: Server) -> None:
    requeuer = server.requeuer()
    before = requeuer.changes
    requeuer.changed()
    requeuer.refused(before)
    requeuer.start()
    assert server.is_touched()


def test_a_pod_rejected_before_a_restart_is_requeued(server: Server) -> None:
    """kube-scheduler continues beside us; a quota may have been deleted while no watch was open."""
    made = small(server)
    made.cluster.requeuer.start()
    made.cluster.nodes.changed(node("b", 1))
    assert server.is_touched()


def test_a_preemption_before_budgets_were_known_is_requeued(server: Server) -> None:
    made = full(server)
    made.cluster.budgets = BudgetSink(made.cluster)
    made.cluster.budgets.replace([])
    assert server.is_touched()
    refused(made, "other")
    # They are listed again, as after a watch that was away for long: that is nothing new.
    made.cluster.budgets.replace([])
    assert server.stays_untouched()


def test_an_unchanged_node_requeues_nothing(server: Server) -> None:
    made = full(server)
    made.cluster.nodes.changed(node("a", 1))
    assert server.stays_untouched()


def test_a_failed_requeue_is_retried(server: Server) -> None:
    server.failing = 2
    made = full(server)
    made.cluster.pods.deleted(made.seen("first"))
    assert server.is_touched()


def held(server: Server) -> Small:
    """Node a's one card is held for a pod that waits for its volume, and another was refused."""
    made = small(server)
    made.create("first")
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    made.server.pods["first"]["spec"]["volumes"] = [claim]
    made.told("first")
    assert made.fits("first", "a") == ["a"]
    refused(made, "next")
    return made


def seconds(made: Small, count: int) -> None:
    """The periodic work of the service, every second."""
    for _ in range(count):
        made.now_s += 1
        made.verbs.holds.expire()


def test_the_end_of_a_short_hold_requeues(server: Server) -> None:
    """The rejected pod needs these cards, and others that need an eviction."""
    made = small(server)
    for name, mib in (("low", 5_000), ("first", 3_000)):
        made.create(name, mib)
        assert made.fits(name, "a") == ["a"]
        if name == "low":
            assert made.bind(name, "a") == ""
            made.told(name)
    refused(made, "next")
    made.cluster.requeuer.start()
    seconds(made, 4)
    assert server.stays_untouched()
    seconds(made, 2)
    assert server.is_touched()
    seconds(made, 60)
    assert server.stays_untouched()


def test_a_failed_binding_requeues(server: Server) -> None:
    """There was no event: the API server is read when the watch should have reported it."""
    made = small(server)
    made.create("first", 3_000)
    made.told("first")

    def away(_: Any) -> None:
        raise Unavailable("POST", "no answer", "later")

    made.server.before = away
    assert "no answer" in made.bind("first", "a")
    for name in ("low", "next"):
        made.create(name, 7_000 if name == "low" else 9_000)
    made.server.before = lambda _: None
    assert made.bind("low", "a") == ""
    made.told("low")
    refused(made, "next")
    made.cluster.requeuer.start()
    made.verbs.binder.check_unreported()
    assert server.stays_untouched()
    made.now_s += 60
    made.verbs.binder.check_unreported()
    assert server.is_touched()


@pytest.mark.parametrize(
    "how", ["its time is over", "it is given up", "it is tried again", "moved"]
)
def test_the_end_of_a_long_hold_requeues(server: Server, how: str) -> None:
    made = held(server)
    seconds(made, 10)
    made.cluster.requeuer.start()
    assert server.stays_untouched()
    if how == "its time is over":
        seconds(made, 600)
    elif how == "it is given up":
        failed = {"type": "PodScheduled", "status": "False", "message": "binding volumes"}
        made.server.pods["first"]["status"] = {"conditions": [failed]}
        made.told("first")
        seconds(made, 1)
    elif how == "it is tried again":
        # And something else of kube-scheduler's turns it away.
        assert made.fits("first", "none") == []
    else:
        made.cluster.nodes.changed(node("b", 1))
        assert server.is_touched()
        assert made.fits("next", "a", "none") == []
        made.server.pods["first"]["status"] = {"nominatedNodeName": "b"}
        made.told("first")
        seconds(made, 1)
    assert server.is_touched()
    assert made.fits("next", "a") == ["a"]


def test_a_binding_after_a_long_hold_requeues_nothing(server: Server) -> None:
    made = held(server)
    seconds(made, 10)
    assert made.bind("first", "a") == ""
    made.told("first")
    made.cluster.requeuer.start()
    seconds(made, 10)
    assert server.stays_untouched()
