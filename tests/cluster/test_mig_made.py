"""Pods on MIG instances that the node agent makes, on a node with several models of GPUs.

What the stub says of its cards is the oracle: which instances exist, and who uses their memory.
"""

import pytest

from cluster import waiting
from cluster.api import Object
from cluster.conftest import StartWhole
from cluster.deployed import create_soon
from cluster.limited_pods import DEADLINE, Limited, install, running
from cluster.mig_pods import (
    MODELS,
    Place,
    assigned,
    fills_its_instance,
    published,
    requesting,
    sees_no_other,
    there,
)
from cluster.objects import NODES, PODS
from cluster.whole import WholeCluster
from support.mig import TABLES, MigCard

pytestmark = [pytest.mark.programs("controllers", "kubectl", "node"), pytest.mark.timeout(600)]


def run_all(cluster: WholeCluster, pods: list[Object]) -> dict[str, Place]:
    """Create these pods, and wait until all run; where each is."""
    for pod in pods:
        create_soon(cluster.control_plane, pod)
    names = [pod["metadata"]["name"] for pod in pods]
    return {name: assigned(running(cluster, name)) for name in names}


def end_all(cluster: WholeCluster, names: dict[str, Place]) -> None:
    for name in names:
        cluster.api.delete(f"{PODS}/{name}", grace_seconds=0)
    for name in names:
        waiting.gone(cluster.api, f"{PODS}/{name}")


def test_instances_are_made_for_pods_and_removed_after_them(whole_cluster: StartWhole) -> None:
    cluster = whole_cluster(cards=",".join([*MODELS, "a100"]))
    gpus = dict(zip([*MODELS, "whole"], cluster.gpu.uuids(), strict=True))
    cards = {model: MigCard(cluster.gpu, index).mode() for index, model in enumerate(MODELS)}
    cluster.gpu.show_instances(cluster.node)
    node = f"{NODES}/{cluster.node.name}"
    cluster.api.patch(node, {"metadata": {"labels": {"hami.io/mode": "mig"}}})
    install(cluster)
    expected = dict.fromkeys(gpus.values(), True)
    waiting.until(lambda: published(cluster) == expected, "all cards are published", DEADLINE)
    theirs = (gpus["h200"], "1g.18gb", 6)
    foreign = cards["h200"].create(TABLES["h200"]["1g.18gb"]["id"], 6)

    seven = run_all(
        cluster,
        [requesting(f"seven-{each}", gpus["a100"], "1g.5gb", "a100") for each in range(7)],
    )
    devices = there(cluster)
    assert {*seven.values(), theirs} == {*devices}
    assert {start for _, _, start in seven.values()} == {*range(7)}
    end_all(cluster, seven)
    waiting.until(lambda: {*there(cluster)} == {theirs}, "no instance is left", DEADLINE)

    mixes = [
        requesting(f"{model}-{name[0]}-{each}", gpus[model], name, model)
        for model in MODELS
        for name, row in TABLES[model].items()
        if "+me" not in name and row["slices"] == (2 if model != "h200" else 3)
        for each in range(row["instances"] if model != "h200" else 1)
    ]
    mixes.append(requesting("a100-one", gpus["a100"], "1g.5gb", "a100"))
    mixed = run_all(cluster, mixes)
    devices = there(cluster)
    assert {*mixed.values(), theirs} == {*devices}
    by_uuid = {device.uuid: device for device in devices.values() if device is not None}
    assert len(by_uuid) == len(mixed) + 1 == 9
    for name in ("a100-one", next(iter(mixed))):
        device = devices[mixed[name]]
        assert device is not None
        fills_its_instance(cluster, name, device)
        sees_no_other(cluster, name, device, by_uuid)
    # A whole card of the node is shared beside them.
    whole = Limited("whole", 1000, 10)
    create_soon(cluster.control_plane, whole.pod("sleep infinity"))
    pod = running(cluster, whole.name)
    assert gpus["whole"] in pod["metadata"]["annotations"]["hami.io/assignment"]
    end_all(cluster, mixed)
    waiting.until(lambda: {*there(cluster)} == {theirs}, "no instance is left", DEADLINE)
    assert cards["h200"].devices() == [foreign]
