"""Pods and nodes as HAMi's users write them: docs/migrate-from-hami.md."""

import json
from typing import Any

import pytest
import yaml

from cluster import images
from cluster.conftest import StartWhole
from cluster.deployed import create_soon
from cluster.limited_pods import FILL, MIB, install, run_in, running
from cluster.objects import NODES
from cluster.whole import WholeCluster

pytestmark = [pytest.mark.programs("controllers", "kubectl", "node"), pytest.mark.timeout(300)]

CARD_MIB, CONTEXT_MIB = 40_960, 413


@pytest.fixture(scope="module")
def cluster(whole_cluster: StartWhole) -> WholeCluster:
    cluster = whole_cluster(cards="a100,a100,t4")
    # HAMi's label. Ours is beside it.
    cluster.api.patch(f"{NODES}/{cluster.node.name}", {"metadata": {"labels": {"gpu": "on"}}})
    install(cluster)
    return cluster


#: In the words of HAMi's documentation (https://project-hami.io/docs/userguide/nvidia-device).
PODS = """
- name: memory-and-cores
  limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 3000, nvidia.com/gpucores: 30}
  sees: [3000]
- name: percentage
  limits: {nvidia.com/gpu: 1, nvidia.com/gpumem-percentage: 50}
  annotations: {nvidia.com/use-gputype: A100}
  sees: [20480]
- name: two-cards
  limits: {nvidia.com/gpu: 2, nvidia.com/gpumem: 4000}
  annotations: {nvidia.com/nouse-gputype: "T4"}
  sees: [4000, 4000]
- name: another-type
  limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 2000}
  annotations: {nvidia.com/use-gputype: "T4"}
  sees: [2000]
- name: priority
  limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 1000, nvidia.com/priority: 1}
  annotations: {hami.io/node-scheduler-policy: binpack, hami.io/gpu-scheduler-policy: spread}
  sees: [1000]
- name: memory-alone
  limits: {nvidia.com/gpumem: 1500}
  sees: [1500]
- name: with-its-variables
  limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 2500, nvidia.com/gpucores: 10}
  env: {CUDA_DISABLE_CONTROL: "true", GPU_CORE_UTILIZATION_POLICY: disable}
  sees: [2500]
"""


@pytest.mark.parametrize("wanted", yaml.safe_load(PODS), ids=lambda wanted: wanted["name"])
def test_a_pod_of_hami_runs_under_its_limits(cluster: WholeCluster, wanted: Any) -> None:
    """The first takes 20 s for the cluster, which the others share."""
    pod = {
        "metadata": {"name": wanted["name"], "annotations": wanted.get("annotations", {})},
        "spec": {
            "nodeSelector": {"gpu": "on"},
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": images.CLIENT,
                    "imagePullPolicy": "Never",
                    "command": ["sleep", "infinity"],
                    "env": [
                        {"name": name, "value": value}
                        for name, value in wanted.get("env", {}).items()
                    ],
                    "resources": {"limits": {k: str(v) for k, v in wanted["limits"].items()}},
                }
            ],
        },
    }
    create_soon(cluster.control_plane, pod)
    annotations = running(cluster, wanted["name"])["metadata"]["annotations"]
    cards = json.loads(annotations["hami.io/assignment"])["containers"]["main"]
    assert [card["memory_mib"] for card in cards] == wanted["sees"]
    report = json.loads(run_in(cluster, wanted["name"], FILL).splitlines()[-1])
    assert report["total"] == wanted["sees"][0] * MIB
    assert "OUT_OF_MEMORY" in report["error"]
