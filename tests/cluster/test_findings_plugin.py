"""Plugins and kubelets that end and restart, and the reaction of the other side."""

import pytest

from cluster import objects, waiting
from cluster.control_plane import ControlPlane
from cluster.device_plugin import StartPlugin
from cluster.gpu_pods import IDS, phase, pod, runs, shows
from cluster.node import Node
from cluster.objects import PODS

pytestmark = [pytest.mark.programs("node"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cluster(node: Node) -> ControlPlane:
    return node.cluster


def test_a_pod_that_arrives_while_the_plugin_is_dead_fails_at_once(
    cluster: ControlPlane, node: Node, plugin: StartPlugin
) -> None:
    asked = plugin()
    cluster.api.create(PODS, pod("before"))
    phase(cluster, "before", "Running")
    asked.stop()
    shows(node, "allocatable", 0)
    shows(node, "capacity", len(IDS))
    # Bound before the scheduler heard of it, as in the gap of a restart.
    wanted = pod("gap", schedulerName="nobody", restartPolicy="Always")
    made = cluster.api.create(PODS, wanted)
    cluster.api.create(f"{PODS}/gap/binding", objects.binding(made, node.name))
    status = phase(cluster, "gap", "Failed")["status"]
    print("in the gap:", status["reason"], status["message"])
    assert status["reason"] == "UnexpectedAdmissionError"
    assert cluster.api.get(f"{PODS}/before")["status"]["phase"] == "Running"
    asked.serve()
    asked.register()
    shows(node, "allocatable", len(IDS))


def test_the_end_of_an_old_plugin_disconnects_the_new_one_too(
    cluster: ControlPlane, node: Node, plugin: StartPlugin
) -> None:
    """A rolling update with maxSurge: the new one registers before the old one ends.

    The kubelet knows plugins by resource name; when a stream of that name ends it closes whichever
    it has now (devicemanager/plugin/v1beta1/handler.go, runClient). So the new one registers again.
    """
    old = plugin()
    cluster.api.create(PODS, pod("before"))
    phase(cluster, "before", "Running")
    new = plugin(name="hami-new.sock")
    waiting.until(lambda: new.calls("ListAndWatch"), "the kubelet watches the new one")
    assert not old.calls("ListAndWatch ended"), "and the old one still"
    old.stop()
    waiting.until(lambda: new.calls("ListAndWatch ended"), "the new one is disconnected")
    shows(node, "allocatable", 0)
    new.register()
    shows(node, "allocatable", len(IDS))
    cluster.api.create(PODS, pod("after"))
    phase(cluster, "after", "Running")
    assert len(new.calls("Allocate")) == 1
    assert cluster.api.get(f"{PODS}/before")["status"]["phase"] == "Running"


def test_a_kubelet_that_restarts_without_the_plugin_ends_running_pods_with_a_gpu_init_container(
    cluster: ControlPlane, node: Node, plugin: StartPlugin
) -> None:
    """Kubernetes issue 138446, pinned: if this fails, fix findings.md.

    The init container is long done, and admission asks for its devices again.
    """
    asked = plugin()
    cluster.api.create(PODS, pod("plain"))
    again = {"initContainers": [runs("init", "true")], "restartPolicy": "Always"}
    cluster.api.create(PODS, pod("with-init", **again))
    for name in ("plain", "with-init"):
        phase(cluster, name, "Running")
    node.kubelet.stop()
    asked.stop()
    node.kubelet.start()
    status = phase(cluster, "with-init", "Failed")["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    status = phase(cluster, "plain", "Running")["status"]
    assert status["containerStatuses"][0]["restartCount"] == 0
    asked.serve()
    asked.register()
    shows(node, "allocatable", len(IDS))
