"""The webhook at a real API server: the mutated pods, and the rejected ones."""

import json
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import objects
from cluster.api import ApiError, Object
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane
from cluster.kubectl import kubectl
from cluster.load import Load
from cluster.objects import PODS
from cluster.webhooks import webhook
from hami_py.model.pods.annotations import LABELS
from hami_py.webhook.certificates import Lifetimes
from hami_py.webhook.service import Webhook
from support.tiers import amount
from unit.pods.build import any_pod


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


def test_a_pod_gets_its_defaults(cluster: ControlPlane, hook: Webhook) -> None:
    pod = create(cluster, objects.pod("a", {"nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}))
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    assert limits["nvidia.com/gpu"] == "1"
    assert env(pod) == {"CUDA_DEVICE_MEMORY_LIMIT": "3000m", "CUDA_DEVICE_SM_LIMIT": "30"}
    assert pod["metadata"]["labels"].items() >= LABELS.items()


def test_a_percentage_is_read_from_the_bindings_annotation(
    cluster: ControlPlane, hook: Webhook
) -> None:
    asked = {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 40}
    reference = env(create(cluster, objects.pod("a", asked)))["CUDA_DEVICE_MEMORY_LIMIT"]
    assert "metadata.annotations[" in json.dumps(reference)


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


def test_a_forged_assignment_is_removed(cluster: ControlPlane, hook: Webhook) -> None:
    pod = objects.pod("a", {"nvidia.com/gpu": 1})
    pod["metadata"]["annotations"] = {"hami.io/assignment": "{}", "mine": "stays"}
    assert create(cluster, pod)["metadata"]["annotations"] == {"mine": "stays"}


RENEWALS = amount("renewals of a certificate")

SENSELESS: list[tuple[Object, str, str]] = [
    ({"gpu": 1, "gpucores": 130}, "gpucores", "from 1 to 100, like 30; 0 means no limit"),
    ({"gpu": "500m"}, "gpu", "nvidia.com/gpumem and nvidia.com/gpucores"),
]
"""Two of the rules that tests/unit/pods has; the API server itself accepts the second value."""


def refused(cluster: ControlPlane, pod: Object, field: str, fix: str) -> None:
    """Not made, for this field of the pod; the answer has a line with the fix."""
    with pytest.raises(ApiError) as refusal:
        cluster.api.create(PODS, pod)
    assert refusal.value.code == 422
    said = str(refusal.value.status["message"])
    (line,) = [line for line in said.splitlines() if field in line]
    assert re.search(rf"{re.escape(field)}: .* is refused: .*{re.escape(fix)}", line), said
    assert cluster.api.list(PODS) == []


@pytest.mark.parametrize(("limits", "named", "fix"), SENSELESS)
def test_an_invalid_request_is_refused(
    cluster: ControlPlane, hook: Webhook, limits: Object, named: str, fix: str
) -> None:
    pod = objects.pod("a", {f"nvidia.com/{name}": value for name, value in limits.items()})
    field = f"spec.containers[0].resources.limits[nvidia.com/{named}]"
    refused(cluster, pod, field, fix)


@pytest.mark.parametrize(
    ("change", "named", "fix"),
    [
        (
            {"env": [{"name": "LD_PRELOAD", "value": "/x.so"}]},
            "env[LD_PRELOAD]",
            "it could load a library before the one that enforces the limit; leave it out",
        ),
        (
            {"securityContext": {"privileged": True}},
            "securityContext.privileged",
            "it can use every card of the node; leave it out where a GPU is requested",
        ),
    ],
)
def test_settings_that_defeat_a_limit_are_refused(
    cluster: ControlPlane, hook: Webhook, change: Object, named: str, fix: str
) -> None:
    pod = objects.pod("a", {"nvidia.com/gpu": 1})
    pod["spec"]["containers"][0].update(change)
    refused(cluster, pod, f"spec.containers[0].{named}", fix)


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


def test_the_certificate_changes_and_no_review_fails(control_plane: StartControlPlane) -> None:
    """A new certificate every two seconds and a new authority every six, under load."""
    cluster = control_plane()
    # Renewed early: on a busy machine the next one may come seconds late.
    lives = Lifetimes(authority_s=30.0, serving_s=10.0, renew_at=0.2, overlap_s=2.0)
    with webhook(cluster, period_s=0.2, lifetimes=lives) as hook, Load(cluster) as load:
        seen: set[float] = set()
        deadline = time.monotonic() + 90
        while (len(seen) < RENEWALS or load.least() < 100) and time.monotonic() < deadline:
            if hook.keeper.expires_at not in seen:
                # All requests under the previous certificate were answered, too.
                load.goes_on()
                seen.add(hook.keeper.expires_at)
            time.sleep(0.1)
    assert (load.wrong, hook.keeper.failures) == ([], 0)
    assert len(seen) >= RENEWALS
    assert load.least() >= 100
