"""The webhook at a real API server: the mutated pods, and the rejected ones."""

import copy
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import objects, waiting
from cluster.api import Object
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane
from cluster.kubectl import kubectl
from cluster.objects import PODS
from cluster.webhooks import webhook
from hami_py.model.pods.annotations import LABELS
from hami_py.webhook.service import Webhook
from unit.pods.build import OF_OTHERS, any_pod


@pytest.fixture(scope="module")
def cluster(module_control_plane: StartControlPlane) -> ControlPlane:
    return module_control_plane()


@pytest.fixture(scope="module")
def hook(cluster: ControlPlane) -> Iterator[Webhook]:
    with webhook(cluster) as hook:
        yield hook


def env(pod: Object, container: int = 0) -> dict[str, object]:
    entries = pod["spec"]["containers"][container].get("env", [])
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in entries}


def create(cluster: ControlPlane, pod: Object) -> Object:
    """The pod as it would be stored."""
    return cluster.api.create(f"{PODS}?dryRun=All", pod)


def asked(cluster: ControlPlane) -> Counter[str]:
    """How often the API server has asked a webhook, by its own count; by mutating or not."""
    found: Counter[str] = Counter()
    for line in cluster.api.text("/metrics").splitlines():
        if line.startswith("apiserver_admission_webhook_request_total{"):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
            found[labels["type"]] += int(line.split()[-1])
    return found


def test_a_pod_without_a_gpu_is_not_reviewed(cluster: ControlPlane, hook: Webhook) -> None:
    before = asked(cluster)
    for limits in ({}, {"example.com/other": 1}, {"nvidia.com/gpu.shared": 1}):
        pod = create(cluster, objects.pod("plain", limits))
        assert "hami.io/pod" not in pod["metadata"].get("labels", {})
    init = objects.container("init", {"cpu": 1})
    create(cluster, objects.pod("plain", {}, initContainers=[init]))
    assert asked(cluster) == before
    # One in an init container, or in a request alone, is one; it is asked about twice.
    init = objects.container("init", {"nvidia.com/gpu": 1})
    create(cluster, objects.pod("with", {}, initContainers=[init]))
    assert asked(cluster) - before == {"admit": 1, "validating": 1}


@pytest.mark.programs("kubectl")
def test_variables_that_would_undo_a_limit_are_removed_with_a_warning(
    cluster: ControlPlane, hook: Webhook, tmp_path: Path
) -> None:
    """The variables are removed from the pod, and the user gets a warning for each."""
    given = {"CUDA_DISABLE_CONTROL": "true", "NVIDIA_VISIBLE_DEVICES": "all", "MINE": "stays"}
    entries = [{"name": name, "value": value} for name, value in given.items()]
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000}
    manifest = tmp_path / "pod.json"
    manifest.write_text(
        json.dumps(objects.pod("a", containers=[objects.container(limits=limits, env=entries)]))
    )
    done = kubectl(cluster, "create", "--dry-run=server", "-o", "json", "-f", manifest)
    assert done.returncode == 0, done.stderr
    assert env(json.loads(done.stdout)) == {"MINE": "stays", "CUDA_DEVICE_MEMORY_LIMIT": "3000m"}
    field = "Warning: spec.containers[0].env"
    assert sorted(done.stderr.splitlines()) == [
        f'{field}[CUDA_DISABLE_CONTROL]: "true" is removed: limits cannot be switched off from '
        "inside the container; leave it out",
        f'{field}[NVIDIA_VISIBLE_DEVICES]: "all" is removed: the container\'s resources select '
        "its cards; leave it out",
    ]


#: The fields that the API server sets on each object.
ITS_OWN = ("uid", "creationTimestamp", "managedFields")


def stored(pod: Object) -> Object:
    """All of an answer but what is another each time."""
    metadata = {key: value for key, value in pod["metadata"].items() if key not in ITS_OWN}
    return {**pod, "metadata": metadata}


def test_a_mutated_pod_is_not_changed_again(cluster: ControlPlane, hook: Webhook) -> None:
    """Of pods of all kinds, as far as they are let in."""
    changed = 0
    for seed in range(300):
        wanted = any_pod(random.Random(seed))  # noqa: S311
        spec = wanted["spec"]
        for container in [*spec["containers"], *spec["initContainers"]]:
            container["image"] = objects.IMAGE
        spec["automountServiceAccountToken"] = False
        wanted["metadata"] = {**wanted["metadata"], "name": "a", "namespace": "default"}
        code, once = cluster.api.request("POST", f"{PODS}?dryRun=All", wanted)
        if code == 422:
            continue
        assert code == 201, once
        assert stored(create(cluster, once)) == stored(once)
        changed += once["metadata"].get("labels") == LABELS
    assert changed >= 30


THEIRS = "/api/v1/namespaces/theirs/pods?dryRun=All"


def with_fields_of_the_api_server(pod: Object) -> Object:
    """A pod of the unit tests, with what the API server requires."""
    pod = copy.deepcopy(pod)
    pod["metadata"]["namespace"] = "theirs"
    pod["spec"]["automountServiceAccountToken"] = False
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "gpu"}]
    for each in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())):
        each["image"] = objects.IMAGE
        resources = each.setdefault("resources", {})
        resources["limits"] = {**resources.get("requests", {}), **resources.get("limits", {})}
    return pod


def test_the_pods_of_a_namespace_of_others_are_limited(
    cluster: ControlPlane, hook: Webhook
) -> None:
    """The condition of the configuration is ``may_have_cards``, written in CEL."""
    labels = {"hami.io/owner": "others"}
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": "theirs", "labels": labels}})

    def limited(pod: Object) -> list[str]:
        spec = cluster.api.create(THEIRS, with_fields_of_the_api_server(pod))["spec"]
        assert spec["schedulerName"] == "default-scheduler"
        return [
            each["name"]
            for each in (*spec.get("initContainers", ()), *spec["containers"])
            if each["resources"].get("requests", {}).get("hami.io/limits") == "1"
        ]

    waiting.until(lambda: limited(OF_OTHERS[0][0]) == OF_OTHERS[0][1], "it is reviewed there")
    for pod, names in OF_OTHERS:
        before = asked(cluster)
        assert limited(pod) == names
        reviews = {"admit": 1, "validating": 1} if names else {}
        assert asked(cluster) - before == reviews, pod
    pod = with_fields_of_the_api_server(objects.pod("alone", {"hami.io/limits": 1}))
    assert cluster.api.request("POST", THEIRS, pod)[0] == 422
