"""Pods on the MIG instances that an administrator has made, on a node that has a whole card too.

NVIDIA's CDI specification is older than the instances. What the stub's ledger says is the oracle.
"""

import json

import pytest

from cluster import waiting
from cluster.api import Object
from cluster.conftest import StartWhole
from cluster.deployed import create_soon
from cluster.limited_pods import DEADLINE, Limited, install, running
from cluster.mig_pods import fills_its_instance, published, sees_no_other
from cluster.objects import PODS
from cluster.whole import WholeCluster
from support.mig import MigCard

pytestmark = [pytest.mark.programs("controllers", "kubectl", "node"), pytest.mark.timeout(300)]

#: The profile 1g.5gb of an A100, and the memory of its instances.
SMALL, INSTANCE_MIB = 19, 4864

#: Each requests less than an instance has.
SMALL_PODS = [Limited(f"small-{number}", 1000, 10) for number in range(3)]


def isolated(pod: Limited) -> Object:
    made = pod.pod("sleep infinity")
    made["metadata"]["annotations"] = {"hami.io/isolation": "mig"}
    return made


def assigned(pod: Object) -> str:
    """The UUID of the card of a pod."""
    assignment = json.loads(pod["metadata"]["annotations"]["hami.io/assignment"])
    ((card,),) = assignment["containers"].values()
    return str(card["card"])


def test_each_pod_has_an_instance_and_stops_at_its_memory(whole_cluster: StartWhole) -> None:
    """Takes 25 s for the cluster."""
    cluster = whole_cluster(cards="a100,a100")
    card = MigCard(cluster.gpu).mode()
    devices = {each.uuid: each for each in (card.create(SMALL) for _ in range(7))}
    cluster.gpu.show_instances(cluster.node)
    install(cluster)
    # The GPU in MIG mode is not one that is lost.
    expected = dict.fromkeys([*devices, cluster.gpu.uuids()[1]], True)
    waiting.until(lambda: published(cluster) == expected, "the instances are published", DEADLINE)
    for pod in SMALL_PODS:
        create_soon(cluster.control_plane, isolated(pod))
    large = Limited("large", 2 * INSTANCE_MIB, 10)
    create_soon(cluster.control_plane, isolated(large))
    on = {pod.name: devices[assigned(running(cluster, pod.name))] for pod in SMALL_PODS}
    assert len({device.uuid for device in on.values()}) == 3
    for name, device in on.items():
        fills_its_instance(cluster, name, device)
        sees_no_other(cluster, name, device, devices)
    waits_for_an_instance(cluster, large.name)


def waits_for_an_instance(cluster: WholeCluster, name: str) -> None:
    """No instance is so large, and the whole card does not isolate enough."""

    def look() -> str | None:
        conditions = cluster.api.get(f"{PODS}/{name}")["status"].get("conditions", [])
        said = [each["message"] for each in conditions if each["type"] == "PodScheduled"]
        return said[0] if said else None

    said = waiting.until(look, "the scheduler says why", DEADLINE)
    assert "less memory than requested" in said, said
