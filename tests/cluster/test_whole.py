"""deploy/ as it is, as pods of a whole cluster; and programs on the cards of its node."""

import json
from typing import Any

import pytest

from cluster import images, objects, waiting
from cluster.api import Object
from cluster.conftest import StartWhole
from cluster.device_plugin import Interfaces, Plugin
from cluster.measure import timed
from cluster.objects import NODES, PODS
from cluster.toolkit import KIND
from cluster.whole import WholeCluster

pytestmark = [pytest.mark.programs("controllers", "kubectl", "node"), pytest.mark.timeout(300)]

#: Allocates until memory is out, and prints how much there is and how much it got.
FILL = ["python3", "/programs/with_cuda_bindings.py", "fill", "256"]

#: A resource of a device plugin that gives a whole card.
CARD = "hami-py.test/card"


@pytest.fixture(scope="module")
def cluster(whole_cluster: StartWhole) -> WholeCluster:
    """A cluster with deploy/. Its node lacks the label that the node agent runs by."""
    with timed("a cluster with two cards"):
        cluster = whole_cluster(cards="a100,a100")
    with timed("deploy/ is applied, webhook and scheduler are ready"):
        cluster.apply()
        for part in ("webhook", "scheduler"):
            cluster.rolled_out(f"deployment/hami-{part}")
    return cluster


def test_the_deployed_pods_review_a_pod_and_refuse_it_without_a_card(cluster: WholeCluster) -> None:
    """Takes 15 s for a cluster: only here webhook and scheduler run as pods of their image."""
    pods = cluster.api.list("/api/v1/namespaces/hami-system/pods")
    assert [pod["spec"]["nodeName"] for pod in pods] == [cluster.node.name] * 4
    statuses = [status for pod in pods for status in pod["status"]["containerStatuses"]]
    assert [status["restartCount"] for status in statuses] == [0] * 6
    # Else kube-scheduler refuses the pod itself, and does not ask the extender.
    plenty = {"nvidia.com/gpu": "64", "nvidia.com/gpumem": "80000", "nvidia.com/gpucores": "200"}
    status = {"status": {"capacity": plenty, "allocatable": plenty}}
    cluster.api.patch(f"{NODES}/{cluster.node.name}/status", status)
    pod = objects.pod("waits", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000})
    waiting.until(lambda: is_reviewed(cluster, pod), "the webhook is asked")
    with timed("a pod is created, and the extender refuses it"):
        made = cluster.api.create(PODS, pod)
        assert made["metadata"]["labels"] == {"hami.io/pod": "true"}
        waiting.unschedulable(cluster.api, "waits", "no cards are registered")


def test_a_program_has_the_card_that_its_environment_names(cluster: WholeCluster) -> None:
    uuid = cluster.gpu.uuids()[1]
    # Elsewhere only pods that request a card may have the variable, and the webhook removes it.
    allowed = {"name": "monitoring", "labels": {"hami.io/visible-devices": "allow"}}
    cluster.api.create("/api/v1/namespaces", {"metadata": allowed})
    variable = {"name": "NVIDIA_VISIBLE_DEVICES", "value": uuid}
    with timed("a program with a card, from its pod's creation to its end"):
        fills(cluster, uuid, "environment", "monitoring", env=[variable])


def test_a_program_has_the_card_that_a_device_plugin_names(
    cluster: WholeCluster, compiled: Interfaces
) -> None:
    """As a user who is not root, from a real kubelet and by a CDI name, like the agent's."""
    uuid = cluster.gpu.uuids()[0]
    answer = {"cdi_devices": [compiled.plugin.CDIDevice(name=f"{KIND}={uuid}")]}
    folder = cluster.node.device_plugins
    with Plugin(compiled, folder, [uuid], resource=CARD, name="card.sock", answer=answer):
        resources = {"limits": {CARD: "1"}}
        user = {"runAsUser": 1000}
        fills(cluster, uuid, "plugin", resources=resources, securityContext=user)


def is_reviewed(cluster: WholeCluster, pod: Object) -> bool:
    """Whether the API server asks the webhook for such a pod."""
    code, made = cluster.api.request("POST", f"{PODS}?dryRun=All", pod)
    return code == 201 and bool(made["spec"]["schedulerName"] == "hami-scheduler")


def fills(
    cluster: WholeCluster, uuid: str, name: str, namespace: str = "default", **container: object
) -> None:
    """A pod runs FILL, and has all memory of this card and none of the others."""
    image = {"image": images.CLIENT, "imagePullPolicy": "Never", "command": FILL}
    program = {**objects.container(), **image, **container}
    pod = objects.pod(name, containers=[program], restartPolicy="Never")
    before = peaks(cluster)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    cluster.api.create(pods, pod)

    def has_ended() -> Object | None:
        status: Object = cluster.api.get(f"{pods}/{name}")["status"]
        return status if status["phase"] in ("Succeeded", "Failed") else None

    status = waiting.until(has_ended, f"pod {name} has ended")
    output = cluster.node.output(name, namespace=namespace)
    assert status["phase"] == "Succeeded", output
    (card,) = [each for each in cluster.gpu.ledger()["cards"] if each["uuid"] == uuid]
    report = json.loads(output)
    assert report["total"] == card["total"]
    assert "CUDA_ERROR_OUT_OF_MEMORY" in report["error"]
    assert peaks(cluster) == {**before, uuid: report["got"]}


def peaks(cluster: WholeCluster) -> dict[str, Any]:
    """The most bytes that programs ever held, by card."""
    return {each["uuid"]: each["requested"]["peak"] for each in cluster.gpu.ledger()["cards"]}
