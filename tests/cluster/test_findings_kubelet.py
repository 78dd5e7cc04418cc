"""The calls of a kubelet to a device plugin, their order, and their visibility from outside."""

import json
import time
from typing import Any

import grpc
import pytest

from cluster import objects, waiting
from cluster.api import Object
from cluster.control_plane import ControlPlane
from cluster.device_plugin import Interfaces, StartPlugin, listed
from cluster.gpu_pods import GPU, IDS, checkpoint, ids, phase, pod, runs
from cluster.node import Node
from cluster.objects import PODS
from cluster.recordings import Recordings

pytestmark = [pytest.mark.programs("node"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cluster(node: Node) -> ControlPlane:
    return node.cluster


def test_calls_come_in_order_and_the_allocate_response_reaches_the_container(
    cluster: ControlPlane, node: Node, plugin: StartPlugin
) -> None:
    asked = plugin()
    cluster.api.create(PODS, pod("one", runs("main", "echo $IDS")))
    phase(cluster, "one", "Succeeded")
    first, *methods = [call.method for call in asked.calls() if "Watch" not in call.method]
    assert first == "GetDevicePluginOptions", "at registration; 1.20 took those of Register"
    assert methods == ["GetPreferredAllocation", "Allocate", "PreStartContainer"]
    (given,) = ids(asked, "Allocate")
    assert ids(asked, "PreStartContainer") == [given]
    assert given[0] in node.log("one")
    assert sorted(ids(asked, "GetPreferredAllocation")[0]) == IDS


def test_a_list_inside_get_preferred_allocation_answers_and_shows_the_pod_without_ids(
    cluster: ControlPlane, node: Node, plugin: StartPlugin, compiled: Interfaces
) -> None:
    seen: list[tuple[Any, float]] = []

    def look(request: Any, context: Any) -> None:
        begin = time.monotonic()
        answer = listed(compiled, node.pod_resources)
        seen.append((answer, time.monotonic() - begin))

    plugin(hooks={"GetPreferredAllocation": look})
    for name in ("one", "two", "three"):
        cluster.api.create(PODS, pod(name))
    for name in ("one", "two", "three"):
        phase(cluster, name, "Running")
    print("seconds of a List inside the call:", [round(took, 4) for _, took in seen])
    assert len(seen) == 3
    for answer, _ in seen:
        without = [name for name, containers in answer.items() if containers == {"main": []}]
        assert len(without) == 1, "exactly one pod is in admission"
    assert [len(answer) for answer, _ in seen] == [1, 2, 3]


def test_lists_are_limited_in_their_rate(
    node: Node, plugin: StartPlugin, compiled: Interfaces
) -> None:
    plugin()
    with grpc.insecure_channel(f"unix://{node.pod_resources}") as channel:
        stub = compiled.resources_services.PodResourcesListerStub(channel)
        request = compiled.resources.ListPodResourcesRequest()
        answers = [stub.List.future(request, timeout=30.0) for _ in range(300)]
        codes = [answer.code() for answer in answers]
    assert set(codes) == {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
    print("answered of 300 at once:", codes.count(grpc.StatusCode.OK))


def test_the_checkpoint_has_pod_container_ids_and_response_before_the_start(
    cluster: ControlPlane, node: Node, plugin: StartPlugin, recordings: Recordings
) -> None:
    at_start: list[Object] = []
    plugin(hooks={"PreStartContainer": lambda request, context: at_start.extend(checkpoint(node))})
    init = runs("init", "true")
    made = cluster.api.create(PODS, pod("one", runs("main", "true"), initContainers=[init]))
    phase(cluster, "one", "Succeeded")
    recordings.keep("kubelet-checkpoint", json.loads(node.checkpoint.read_text()))
    entries = [entry for entry in at_start if entry["PodUID"] == made["metadata"]["uid"]]
    # Admission is over before the first container starts: all entries are there, twice looked at.
    assert [entry["ContainerName"] for entry in entries] in (
        ["init", "main"] * 2,
        ["main", "init"] * 2,
        ["init", "main", "main", "init"],
        ["main", "init", "init", "main"],
    )
    assert all(entry["ResourceName"] == GPU for entry in entries)
    assert all(list(entry["DeviceIDs"]) == ["-1"] for entry in entries), "IDs by NUMA node"


def test_prestart_is_called_at_every_restart_and_allocate_once(
    cluster: ControlPlane, plugin: StartPlugin
) -> None:
    asked = plugin()
    cluster.api.create(PODS, pod("one", runs("main", "sleep 1"), restartPolicy="Always"))

    def restarted() -> bool:
        (status,) = cluster.api.get(f"{PODS}/one")["status"].get("containerStatuses") or [{}]
        return bool(status.get("restartCount"))

    waiting.until(restarted, "the container is restarted")
    assert len(asked.calls("Allocate")) == 1
    assert len(asked.calls("PreStartContainer")) >= 2
    assert len(set(ids(asked, "PreStartContainer"))) == 1


def test_two_apps_get_the_init_containers_ids_without_a_call(
    cluster: ControlPlane, node: Node, plugin: StartPlugin, compiled: Interfaces
) -> None:
    asked = plugin()
    apps = [runs("first", count=1), runs("second", count=1)]
    init = runs("init", "true", count=2)
    cluster.api.create(PODS, pod("one", *apps, initContainers=[init]))
    phase(cluster, "one", "Running")
    assert len(asked.calls("GetPreferredAllocation")) == 1, "for the init container alone"
    for_init, *for_apps = [set(given) for given in ids(asked, "Allocate")]
    assert len(for_init) == 2
    assert set().union(*for_apps) == for_init
    # List shows the app containers alone, and so does Get.
    assert sorted(listed(compiled, node.pod_resources)["one"]) == ["first", "second"]
    with grpc.insecure_channel(f"unix://{node.pod_resources}") as channel:
        stub = compiled.resources_services.PodResourcesListerStub(channel)
        wanted = {"pod_name": "one", "pod_namespace": "default"}
        answer = stub.Get(compiled.resources.GetPodResourcesRequest(**wanted), timeout=10.0)
    found = sorted(container.name for container in answer.pod_resources.containers)
    assert found == ["first", "second"]


def test_ids_are_free_when_the_container_has_ended_but_the_pod_exists(
    cluster: ControlPlane, node: Node, plugin: StartPlugin
) -> None:
    plugin()
    slow = pod("slow", runs("main", "true", count=8))
    slow["metadata"]["finalizers"] = ["hami-py.test/hold"]
    cluster.api.create(PODS, slow)
    phase(cluster, "slow", "Succeeded")
    cluster.api.delete(f"{PODS}/slow")
    cluster.api.create(PODS, pod("next", runs("main", "true", count=8)))
    try:
        phase(cluster, "next", "Succeeded")
    finally:
        cluster.api.patch(f"{PODS}/slow", {"metadata": {"finalizers": None}})


def test_a_field_of_an_annotation_that_the_binding_wrote_reaches_the_environment(
    cluster: ControlPlane, node: Node, plugin: StartPlugin
) -> None:
    plugin()
    field = {"fieldPath": "metadata.annotations['hami-py.test/limit']"}
    env = [{"name": "LIMIT", "valueFrom": {"fieldRef": field}}]
    wanted = pod("one", runs("main", "echo LIMIT=$LIMIT", env=env), schedulerName="nobody")
    made = cluster.api.create(PODS, wanted)
    metadata = {"uid": made["metadata"]["uid"], "annotations": {"hami-py.test/limit": "3000m"}}
    cluster.api.create(f"{PODS}/one/binding", objects.binding(made, node.name, **metadata))
    phase(cluster, "one", "Succeeded")
    assert "LIMIT=3000m" in node.log("one")
