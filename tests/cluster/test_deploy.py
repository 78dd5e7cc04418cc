"""`kubectl apply -k deploy/`, as it is, and our programs with the rights that it gives them."""

import contextlib
import json
import re
from pathlib import Path

import pytest
import yaml

from cluster import charts, objects, waiting
from cluster.api import ApiError, Object
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane, Settings
from cluster.deployed import DEPLOY, apply, container, create_soon, documents, extender, webhook
from cluster.extended import assignment, card, configuration, node
from cluster.kubectl import hami, kubectl
from cluster.objects import NODES, PODS
from cluster.servers import free_ports

pytestmark = pytest.mark.programs("kubectl", "helm", "helm3")


#: Pods with other resources are ignored: NVIDIA's time slicing, names that are not enabled.
OTHERS: list[dict[str, object]] = [{}, {"nvidia.com/gpu.shared": 1}, {"aliyun.com/gpu-mem": 4}]


def is_left_alone(pod: Object) -> None:
    """The webhook was not asked."""
    assert pod["spec"]["schedulerName"] == "default-scheduler"
    assert "labels" not in pod["metadata"]
    assert "nvidia.com/gpu" not in pod["spec"]["containers"][0]["resources"].get("limits", {})


def applied_again(cluster: ControlPlane) -> None:
    """Apply once more; `kubectl diff` then finds no difference."""
    apply(cluster)
    changes = kubectl(cluster, "diff", "-k", DEPLOY)
    assert (changes.returncode, changes.stdout) == (0, "")


@pytest.mark.parametrize("version", [None, "1.33"])
def test_a_pod_is_admitted_scheduled_and_bound(
    control_plane: StartControlPlane, address: str, version: str | None
) -> None:
    """Also where the programs behave as an older Kubernetes; 1.33 is as far as they go back."""
    (port,) = free_ports(1)
    profiles = [{"schedulerName": "hami-scheduler"}]
    cluster = control_plane(
        scheduler={**configuration(port), "profiles": profiles}, settings=Settings(emulates=version)
    )
    assert "unchanged" not in apply(cluster)
    applied_again(cluster)
    # Without an image, for example, the webhook never answers.
    plain = cluster.api.create(f"{PODS}?dryRun=All", objects.pod("early", {"nvidia.com/gpu": 1}))
    assert "labels" not in plain["metadata"]

    cluster.api.create(NODES, node("a", [card("a", 0), card("a", 1)]))
    asked = {"nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}
    with extender(cluster, port):
        with webhook(cluster, address):
            pod = create_soon(cluster, objects.pod("one", asked))
            assert pod["spec"]["schedulerName"] == "hami-scheduler"
            waiting.bound(cluster.api, "one")
            (grant,) = assignment(cluster.api, "one").containers["main"]
            assert (grant.memory_mib, grant.cores) == (3000, 30)
            # The assignment is ours.
            change = {"metadata": {"annotations": {"hami.io/assignment": "{}"}}}
            with pytest.raises(ApiError, match="only hami-py may write it"):
                cluster.api.patch(f"{PODS}/one", change)
            for number, others in enumerate(OTHERS):
                is_left_alone(cluster.api.create(PODS, objects.pod(f"plain-{number}", others)))
            # As a webhook leaves it that reads names which kube-scheduler is not told of.
            early = {"nvidia.com/gpu": 1, "aliyun.com/gpu-mem": 4}
            cluster.api.create(PODS, objects.pod("early", early))
            waiting.unschedulable(cluster.api, "early", "Insufficient aliyun.com/gpu-mem")
        applied_again(cluster)
        with pytest.raises(ApiError, match="failed calling webhook"):
            cluster.api.create(PODS, objects.pod("two", asked))
        for number, others in enumerate(OTHERS):
            cluster.api.create(PODS, objects.pod(f"too-{number}", others))


def test_the_names_of_alibaba_cloud_are_enabled(
    control_plane: StartControlPlane, address: str, tmp_path: Path
) -> None:
    """By the chart, with Helm 3; test_node_life.py uses Helm 4."""
    (port,) = free_ports(1)
    profiled = ("--set", "settings.profiles={hami,aliyun}")
    maps = [each for each in charts.rendered(*profiled) if each["kind"] == "ConfigMap"]
    files = {name: text for each in maps for name, text in each["data"].items()}
    settings = tmp_path / "settings.yaml"
    settings.write_text(files["settings.yaml"])
    profiles = [{"schedulerName": "hami-scheduler"}]
    wanted = yaml.safe_load(files["scheduler.yaml"])
    cluster = control_plane(scheduler={**configuration(port, wanted), "profiles": profiles})
    release = ("--namespace", charts.NAMESPACE, "--create-namespace")
    charts.run(cluster, "install", charts.RELEASE, charts.CHART, *release, *profiled, group="helm3")
    cluster.api.create(NODES, node("a", [card("a", 0)]))
    limits = {"aliyun.com/gpu-mem": 4, "aliyun.com/gpu-core.percentage": 30}
    with extender(cluster, port, settings), webhook(cluster, address, settings):
        pod = create_soon(cluster, objects.pod("theirs", limits))
        assert pod["spec"]["schedulerName"] == "hami-scheduler"
        assert pod["metadata"]["labels"] == {"hami.io/pod": "true"}
        (made,) = pod["spec"]["containers"]
        assert made["resources"]["limits"]["nvidia.com/gpu"] == "1"
        waiting.bound(cluster.api, "theirs")
        (grant,) = assignment(cluster.api, "theirs").containers["main"]
        assert (grant.memory_mib, grant.cores) == (4096, 30)
        # HAMi's go on beside them.
        cluster.api.create(PODS, objects.pod("ours", {"nvidia.com/gpumem": 3000}))
        waiting.bound(cluster.api, "ours")
        is_left_alone(cluster.api.create(PODS, objects.pod("others", OTHERS[1])))
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"limits.aliyun.com/gpu-mem": 8}}}
    cluster.api.create("/api/v1/namespaces/default/resourcequotas", quota)
    there = ("--kubeconfig", cluster.kubeconfig)
    # Without them it asks for a whole card, and there is another pod on the only one.
    for given, fits, counted in (((), "no", []), (("--settings", settings), "yes", [8192])):
        explained = hami("explain", "pod", "theirs", *given, *there).stdout
        assert re.search(rf"^a +{fits}\b", explained, re.M), explained
        quotas = json.loads(hami("snapshot", *given, *there).stdout)["quotas"]
        assert [each["memory_mib"] for each in quotas] == counted


def test_kube_scheduler_acquires_its_lease_with_the_rights_of_deploy(
    control_plane: StartControlPlane, address: str
) -> None:
    """As its service account, with the configuration that its pod reads; and its extender binds."""
    cluster = control_plane()
    apply(cluster)
    (wanted,) = documents("scheduler/scheduler.yaml")
    election = wanted["leaderElection"]
    assert election["leaderElect"]
    account = cluster.user("system:serviceaccount:hami-system:hami-scheduler")
    (port,) = free_ports(1)
    ours = {"profiles": wanted["profiles"], "leaderElection": election}
    reading = {**configuration(port), **ours}
    cluster.reschedule(reading, cluster.kubeconfig_for(account))
    path = "/apis/coordination.k8s.io/v1/namespaces/{resourceNamespace}/leases/{resourceName}"
    lease = path.format_map(election)
    listed = f"--lease={lease.split('/')[5]}/{election['resourceName']}"
    assert listed in container("scheduler")["args"]

    def holder() -> object:
        with contextlib.suppress(ApiError):
            return cluster.api.get(lease)["spec"].get("holderIdentity")
        return None

    waiting.until(holder, "it has the lease")
    renewed = cluster.api.get(lease)["spec"]["renewTime"]
    waiting.until(lambda: cluster.api.get(lease)["spec"]["renewTime"] != renewed, "it renews it")
    # Both are in one pod there, and its extender finds the pod's name in the lease.
    cluster.api.create(NODES, node("a", [card("a", 0)]))
    with extender(cluster, port), webhook(cluster, address):
        create_soon(cluster, objects.pod("one", {"nvidia.com/gpu": 1}))
        waiting.bound(cluster.api, "one")
