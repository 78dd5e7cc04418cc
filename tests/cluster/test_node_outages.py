"""Pods run after a reboot, minutes without an API server, and many restarts of the kubelet.

Each container of the Deployment holds all memory of its limit. In the end each pod runs on the
card that scheduler, kubelet, node agent and driver agree on, and nothing remains of the others.
"""

import os
import signal
import time
from collections.abc import Iterator

import pytest

from cluster import card_owners, crowd, objects, waiting
from cluster.api import Object
from cluster.card_watch import Watch
from cluster.conftest import StartWhole
from cluster.crowd import Size
from cluster.limited_pods import install, start_first
from cluster.node_remains import INTERRUPTED, check_nothing_remains
from cluster.objects import PODS
from cluster.whole import WholeCluster

pytestmark = [
    pytest.mark.programs("controllers", "kubectl", "node"),
    pytest.mark.tier("torture"),
    pytest.mark.timeout(1800),
]

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"

#: Half of the memory of four cards.
REPLICAS, SIZE = 16, Size(10240, 20)

#: Seconds without an API server, and restarts of the kubelet.
AWAY_S, RESTARTS = 120, 100

#: Seconds until all pods run after an outage.
DEADLINE = 300.0


@pytest.fixture(scope="module")
def cluster(whole_cluster: StartWhole) -> WholeCluster:
    """A cluster with hami and four cards."""
    cluster = whole_cluster(cards=",".join(["a100-80"] * 4), kubelet_config=crowd.KUBELET)
    install(cluster)
    start_first(cluster)
    return cluster


@pytest.fixture
def pods(cluster: WholeCluster) -> Iterator[list[Object]]:
    """The running pods of a Deployment."""
    labels = {"app": "held"}
    template = objects.pod(
        containers=[crowd.container("main", "fill", crowd.limits(SIZE))],
        metadata={"labels": labels},
        restartPolicy="Always",
    )
    spec = {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": template}
    cluster.api.create(DEPLOYMENTS, {"metadata": {"name": "held"}, "spec": spec})
    yield running(cluster)
    cluster.api.delete(f"{DEPLOYMENTS}/held")
    cluster.api.delete_all(PODS)
    waiting.until(lambda: not cluster.api.list(PODS), "all pods are deleted", DEADLINE)
    check_nothing_remains(cluster, besides=INTERRUPTED)


def running(cluster: WholeCluster) -> list[Object]:
    """All pods of the Deployment, once they run and hold their memory."""
    found = crowd.all_running(
        cluster, REPLICAS, lambda pod: any(each["ready"] for each in statuses(pod))
    )
    card_owners.check_agreement(cluster, found)
    return found


def containers(pods: list[Object]) -> dict[str, str]:
    """By pod, the ID of its container."""
    return {
        pod["metadata"]["uid"]: status["containerID"]
        for pod in pods
        for status in statuses(pod)
        if "containerID" in status
    }


def statuses(pod: Object) -> list[Object]:
    """Those of its container; none while the kubelet fails a pod that it does not admit."""
    found: list[Object] = pod["status"].get("containerStatuses", [])
    return found


def test_a_reboot(cluster: WholeCluster, pods: list[Object]) -> None:
    """The kubelet fails pods that it admits before the plugin is there: they are replaced."""
    cluster.reboot()
    with Watch(cluster):
        before = containers(pods)

        def rebooted() -> bool:
            now = [pod for pod in cluster.api.list(PODS) if crowd.runs(pod)]
            return not before.items() & containers(now).items()

        waiting.until(rebooted, "no container of before the reboot is reported", DEADLINE)
        after = containers(running(cluster))
        # After a reboot containerd leaves its folders of earlier containers to its next start.
        cluster.node.containerd.stop()
        cluster.node.containerd.start()
        assert containers(running(cluster)) == after
    print(f"{len(before.keys() & after.keys())} of {REPLICAS} pods were not replaced")


def test_minutes_without_an_api_server(cluster: WholeCluster, pods: list[Object]) -> None:
    """Containers run on, and one whose program ends starts again with its limits."""
    before = {pod["metadata"]["uid"]: [*cluster.processes(pod["metadata"]["uid"])] for pod in pods}
    victim, *others = before
    with Watch(cluster):
        cluster.control_plane.apiserver.kill()
        for process in before[victim]:
            os.kill(process, signal.SIGKILL)
        time.sleep(AWAY_S)
        for uid in others:
            assert [*cluster.processes(uid)] == before[uid]
        again = [*cluster.processes(victim)]
        assert again, "the container runs again"
        assert again != before[victim]
        cluster.control_plane.apiserver.start()
        assert containers(running(cluster)).keys() == before.keys()
        # The scheduler and the agent follow again.
        cluster.api.delete(f"{PODS}/{pods[0]['metadata']['name']}")
        assert len(containers(running(cluster)).keys() - before.keys()) == 1


def test_a_kubelet_that_restarts_often(cluster: WholeCluster, pods: list[Object]) -> None:
    """Each time it removes the plugin's socket and creates its own again."""
    before = containers(pods)
    for number in range(RESTARTS):
        cluster.node.kubelet.kill()
        cluster.node.kubelet.start()
        if number % 10 == 9:
            # A new pod needs a device of the plugin.
            start_first(cluster)
    assert containers(running(cluster)) == before
