"""The end of a history: no more faults occur, and the final rules must hold."""

from __future__ import annotations

import json

from hami_py._native import Allocator
from hami_py.cluster.state import NODES, PODS, QUOTAS, Cluster
from hami_py.kube import list_objects
from hami_py.model import pods
from hami_py.model.pods import objects
from histories import feasibility
from histories.fake_api import FakeApi
from histories.faults import Client
from histories.oracle import Broken
from histories.scene import Scene
from histories.status_errors import Object

CALM_S = 290.0
"""Longer than any pause, hold of seconds and wait for a volume one after the other, and less than
the five minutes after which kube-scheduler would try a pod without having heard of anything."""

PAUSE_S = 15.0
"""The longest that a follower waits after a failure."""

FORGET_S = 620.0
"""Longer than any hold or reservation that nobody speaks of any more."""


def everybody_is_bound(scene: Scene) -> None:
    """No more faults occur, and soon all pods that fit are bound."""
    scene.is_calm = True
    for former in scene.former:
        scene.ends(former)
    scene.tell("calm", "nothing fails any more")
    give_up = scene.clock.now + CALM_S
    quiesce(scene)
    while stuck := scene.scheduler is None or _waiting_in_vain(scene):
        if scene.clock.now > give_up:
            raise Broken(f"not bound, and there is room: {stuck}")
        _go_on(scene)


def what_is_no_event(scene: Scene) -> None:
    """All is quiet, and now something happens that kube-scheduler does not hear of."""
    what = scene.chance.choice(("quotas go", "restart", "init is done"))
    scene.tell("calm", what)
    if what == "restart":
        scene.restart(0)
        scene.restart(1)
    if what in ("quotas go", "restart"):
        scene.world.quotas_go()
    while what == "init is done" and scene.world.pod_starts():
        pass
    everybody_is_bound(scene)


def _go_on(scene: Scene) -> None:
    """To the next moment at which something may happen."""
    now = scene.clock.now
    moments = [scene.clock.next_due(), scene.scheduler and scene.scheduler.next_at()]
    moments += [replica.wakes_at for replica in scene.replicas]
    moments += [watch.resume_at for each in scene.replicas for watch in each.watches]
    later = min([at for at in moments if at and at > now], default=now + 10)
    scene.clock.advance(min(later, now + 10))
    scene.tick()
    while scene.world.kubelet_is_done():
        pass
    quiesce(scene)


def quiesce(scene: Scene) -> None:
    """Until there is nothing to do at this time."""
    while True:
        for replica in scene.replicas:
            for watch in () if replica.is_dead else replica.watches:
                watch.catch_up(scene.api.version)
            scene.tell("calm", replica.wake())
        if scene.scheduler is None:
            return
        scene.scheduler.look()
        did = scene.scheduler.schedule_one() or scene.bind()
        scene.tell("calm", did)
        if did is None:
            return


def _somewhere(api: FakeApi, pod: Object) -> str | None:
    """A node where a pod would fit, if need be without less important pods."""
    return feasibility.anywhere(api, pod) or feasibility.by_preemption(api, pod)


def _waiting_in_vain(scene: Scene) -> str | None:
    """A pod that would fit."""
    stuck = (
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']} on {node}"
        for pod in scene.api.objects["pods"].values()
        if not pod["spec"].get("nodeName")
        and not pod["metadata"].get("deletionTimestamp")
        and (node := _somewhere(scene.api, pod))
    )
    return next(stuck, None)


def nothing_is_left(scene: Scene) -> None:
    """The replicas know what a new one would, with all pods and then without any."""
    scene.scheduler = None
    # Cards are held for a preemptor as long as its victims terminate.
    while scene.world.kubelet_is_done():
        pass
    _agree(scene, "the same pods")
    scene.world.everything_goes()
    _agree(scene, "no pods")


def _agree(scene: Scene, what: str) -> None:
    # All watches deliver, missing state is read, and a watch may have to be reopened. A hold that
    # ends some time after its victims ends some time after the watch has reported them.
    for seconds in (PAUSE_S, PAUSE_S, FORGET_S, PAUSE_S, PAUSE_S):
        scene.clock.advance(scene.clock.now + seconds)
        scene.tick()
        quiesce(scene)
    client = Client(scene.api, scene.clock)
    truth = Cluster(Allocator(), pods.PodSettings())
    truth.nodes.replace(*list_objects(client, NODES, objects.Node))  # type: ignore[arg-type]
    truth.quotas.replace(*list_objects(client, QUOTAS, objects.ResourceQuota))  # type: ignore[arg-type]
    # All of them: who is bound has the label by then, whether or not the webhook gave it.
    truth.pods.replace(*list_objects(client, PODS, objects.Pod))  # type: ignore[arg-type]
    for replica in scene.replicas:
        if replica.cluster.allocator.digest() != truth.allocator.digest():
            difference = _difference(replica.cluster.allocator, truth.allocator)
            raise Broken(f"{what}: {replica.name} has {difference}")


def _difference(one: Allocator, other: Allocator) -> str:
    """The entries of each state that the other one lacks."""
    states = [json.loads(allocator.snapshot()) for allocator in (one, other)]
    had, wanted = (
        {json.dumps(item) for part in ("nodes", "quotas", "pods") for item in state[part]}
        for state in states
    )
    return f"{sorted(had - wanted)} and not {sorted(wanted - had)}"
