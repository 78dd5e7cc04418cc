"""Limits behind allocators without claims, by objects and plugins in their shape.

None of their own programs runs. NVIDIA's plugin, Volcano's and KAI name the cards of a container in
the variable NVIDIA_VISIBLE_DEVICES, for NVIDIA's runtime. The stub's ledger is the oracle.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from cluster import images, objects, waiting
from cluster.api import Object
from cluster.conftest import StartWhole
from cluster.device_plugin import Interfaces, Plugin
from cluster.gpu_pods import shows
from cluster.limited_pods import FILL, LABEL, MIB, ended, output
from cluster.node_faults import RESTARTS
from cluster.objects import NODES, PODS
from cluster.whole import WholeCluster

pytestmark = [pytest.mark.programs("controllers", "kubectl", "node"), pytest.mark.timeout(300)]

OTHERS = {"hami.io/owner": "others"}

#: MiB of the one card.
CARD = 40 << 10

RESERVATIONS = "/api/v1/namespaces/kai-resource-reservation/pods"


@pytest.fixture(scope="module")
def cluster(whole_cluster: StartWhole) -> WholeCluster:
    """A cluster whose node and default namespace are of others."""
    cluster = whole_cluster(cards="a100", kubelet_config=RESTARTS)
    labels = {"metadata": {"labels": {**LABEL, **OTHERS}}}
    cluster.api.patch(f"{NODES}/{cluster.node.name}", labels)
    cluster.api.patch("/api/v1/namespaces/default", {"metadata": {"labels": OTHERS}})
    cluster.apply()
    for part in ("deployment/hami-webhook", "daemonset/hami-node"):
        cluster.rolled_out(part)
    shows(cluster.node, "allocatable", 1024, "hami.io/limits")
    return cluster


@pytest.fixture(autouse=True)
def _pods(cluster: WholeCluster) -> Iterator[None]:
    yield
    cluster.api.delete_all(PODS)
    waiting.until(lambda: not cluster.api.list(PODS), "the test's pods are deleted")


def pod(name: str, limits: Mapping[str, int], env: Mapping[str, Any] | None = None) -> Object:
    """A pod that takes all memory that it gets; it prints what it sees."""
    written = [
        {"name": "STUB_GPU_GROUP", "value": name},
        *({"name": k, **v} for k, v in (env or {}).items()),
    ]
    image = {"image": images.CLIENT, "imagePullPolicy": "Never"}
    script = f"cat /etc/ld.so.preload >&2; exec {' '.join(FILL)}"
    command = ["/bin/sh", "-euc", script]
    container = objects.container("main", limits, env=written, command=command, **image)
    return objects.pod(name, containers=[container], restartPolicy="Never")


def total_mib(cluster: WholeCluster, name: str) -> float:
    """The card's memory as a pod's program saw it; by the ledger it held no more."""
    text = ended(cluster, name)
    assert "/usr/local/hami/libvgpu.so" in text
    report = json.loads(text.splitlines()[-1])
    (card,) = cluster.gpu.ledger()["cards"]
    assert 0 < card["groups"][name]["occupied"]["peak"] <= report["total"]
    return float(report["total"] / MIB)


def visible(compiled: Interfaces, cards: Any) -> Any:
    """Answers Allocate as NVIDIA's plugin does; ``cards``: the UUIDs by the device IDs."""

    def allocate(request: Any, context: Any) -> Any:
        (wanted,) = request.container_requests
        envs = {"NVIDIA_VISIBLE_DEVICES": ",".join(sorted({*map(cards, wanted.devices_ids)}))}
        answer = compiled.plugin.ContainerAllocateResponse(envs=envs)
        return compiled.plugin.AllocateResponse(container_responses=[answer])

    return allocate


def test_a_replica_of_nvidias_time_slicing_is_its_part_of_the_card(
    cluster: WholeCluster, compiled: Interfaces
) -> None:
    (uuid,) = cluster.gpu.uuids()
    plugin = Plugin(
        *(compiled, cluster.node.device_plugins, [f"{uuid}::{number}" for number in range(4)]),
        name="nvidia-gpu.sock",
        hooks={"Allocate": visible(compiled, lambda id: id.partition("::")[0])},
        asks=False,
    )
    with plugin:
        shows(cluster.node, "allocatable", 4)
        for name, replicas in (("quarter", 1), ("half", 2)):
            cluster.api.create(PODS, pod(name, {"nvidia.com/gpu": replicas}))
        assert total_mib(cluster, "quarter") == CARD / 4
        assert total_mib(cluster, "half") == CARD / 2


def test_a_pod_of_kai_has_its_fraction_of_the_card_of_its_reservation_pod(
    cluster: WholeCluster,
) -> None:
    (uuid,) = cluster.gpu.uuids()
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": "kai-resource-reservation"}})
    card = {"metadata": {"name": "kai"}, "data": {"NVIDIA_VISIBLE_DEVICES": uuid}}
    cluster.api.create("/api/v1/namespaces/default/configmaps", card)
    source = {"configMapKeyRef": {"name": "kai", "key": "NVIDIA_VISIBLE_DEVICES"}}
    fraction = pod("fraction", {}, {"NVIDIA_VISIBLE_DEVICES": {"valueFrom": source}})
    fraction["metadata"] |= {
        "annotations": {"gpu-fraction": "0.25"},
        "labels": {"runai-gpu-group": "g1"},
    }
    cluster.api.create(PODS, fraction)
    waiting.until(lambda: waits(cluster, "fraction"), "it waits for its card")
    image = {"image": images.BUSYBOX, "imagePullPolicy": "Never"}
    container = objects.container("hold", {}, command=["sleep", "1000"], **image)
    reservation = objects.pod("gpu-reservation-g1", containers=[container])
    reservation["metadata"] |= {
        "labels": {"runai-gpu-group": "g1"},
        "annotations": {"run.ai/reserve_for_gpu_index": uuid},
        "namespace": "kai-resource-reservation",
    }
    cluster.api.create(RESERVATIONS, reservation)
    assert total_mib(cluster, "fraction") == CARD / 4
    cluster.api.delete_all(RESERVATIONS)


def waits(cluster: WholeCluster, name: str) -> bool:
    """Whether an event says that a pod waits for KAI."""
    events = cluster.api.list("/api/v1/namespaces/default/events")
    return any(
        each["reason"] == "WaitingForCard" and "wait for KAI" in each["message"]
        for each in events
        if each["involvedObject"]["name"] == name
    )


def test_a_pod_of_volcano_has_its_amounts_and_our_library(
    cluster: WholeCluster, compiled: Interfaces
) -> None:
    """Volcano's plugin mounts a library of its own, and the same preload file."""
    (uuid,) = cluster.gpu.uuids()
    theirs = cluster.node.root / "var/lib/volcano/ld.so.preload"
    theirs.parent.mkdir(parents=True, exist_ok=True)
    theirs.write_text("/usr/local/vgpu/libvgpu.so\n")
    allocate = visible(compiled, lambda _: uuid)

    def with_mount(request: Any, context: Any) -> Any:
        answer = allocate(request, context)
        mount = answer.container_responses[0].mounts.add()
        mount.container_path, mount.host_path = (
            "/etc/ld.so.preload",
            "/var/lib/volcano/ld.so.preload",
        )
        mount.read_only = True
        return answer

    plugin = Plugin(
        *(compiled, cluster.node.device_plugins, [f"{uuid}-{number}" for number in range(10)]),
        resource="volcano.sh/vgpu-number",
        name="volcano-vgpu.sock",
        hooks={"Allocate": with_mount},
        asks=False,
    )
    with plugin:
        shows(cluster.node, "allocatable", 10, "volcano.sh/vgpu-number")
        one = pod("volcano", {"volcano.sh/vgpu-number": 1})
        ids = f"{uuid},NVIDIA,3000,30:"
        one["metadata"]["annotations"] = {"volcano.sh/vgpu-ids-new": ids}
        cluster.api.create(PODS, one)
        assert total_mib(cluster, "volcano") == 3000
    assert "/usr/local/vgpu" not in output(cluster, "volcano")
