"""The webhook against a real API server: what pods become, and who is turned away."""

import json
import threading
import time
from collections.abc import Iterator

import pytest

from cluster import objects
from cluster.api import ApiError, Object
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane
from cluster.objects import PODS
from cluster.webhooks import webhook
from hami_py.model.pods.annotations import LABELS
from hami_py.webhook.certificates import Lifetimes
from hami_py.webhook.service import Webhook


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


def test_a_pod_gets_what_it_did_not_say(cluster: ControlPlane, hook: Webhook) -> None:
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


def test_a_pod_without_a_gpu_never_comes_here(cluster: ControlPlane, hook: Webhook) -> None:
    before = hook.reviewer.counts()
    pod = create(cluster, objects.pod("plain", {}))
    assert "hami.io/pod" not in pod["metadata"].get("labels", {})
    assert hook.reviewer.counts() == before


def test_a_forged_assignment_is_removed(cluster: ControlPlane, hook: Webhook) -> None:
    pod = objects.pod("a", {"nvidia.com/gpu": 1})
    pod["metadata"]["annotations"] = {"hami.io/assignment": "{}", "mine": "stays"}
    assert create(cluster, pod)["metadata"]["annotations"] == {"mine": "stays"}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"env": [{"name": "LD_PRELOAD", "value": "/x.so"}]}, "env[LD_PRELOAD]"),
        ({"securityContext": {"privileged": True}}, "securityContext.privileged"),
        (
            {"resources": {"limits": {"nvidia.com/gpu": 1, "nvidia.com/gpucores": 130}}},
            "nvidia.com/gpucores",
        ),
        (
            {
                "resources": {
                    "limits": {
                        "nvidia.com/gpu": 1,
                        "nvidia.com/gpumem": 1000,
                        "nvidia.com/gpumem-percentage": 10,
                    }
                }
            },
            "nvidia.com/gpumem",
        ),
    ],
)
def test_what_defeats_a_limit_or_makes_no_sense_is_refused(
    cluster: ControlPlane, hook: Webhook, change: Object, named: str
) -> None:
    pod = objects.pod("a", {"nvidia.com/gpu": 1})
    pod["spec"]["containers"][0].update(change)
    with pytest.raises(ApiError) as refusal:
        create(cluster, pod)
    assert refusal.value.code == 422
    assert named in str(refusal.value)
    assert "is refused" in str(refusal.value)


def test_twice_is_once(cluster: ControlPlane, hook: Webhook) -> None:
    asked = {"nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}
    once = create(cluster, objects.pod("a", asked))
    again = create(cluster, {"metadata": once["metadata"], "spec": once["spec"]})
    assert again["spec"] == once["spec"]


def test_the_certificate_changes_and_no_review_fails(control_plane: StartControlPlane) -> None:
    """A new certificate every two seconds and a new authority every six, under load."""
    cluster = control_plane()
    # Renewed early: on a busy machine the next one may come seconds late.
    lives = Lifetimes(authority_s=30.0, serving_s=10.0, renew_at=0.2, overlap_s=2.0)
    with webhook(cluster, period_s=0.2, lifetimes=lives) as hook:
        seen: set[float] = set()
        failures: list[str] = []
        made = 0
        stop = threading.Event()

        def load() -> None:
            nonlocal made
            while not stop.is_set():
                try:
                    create(cluster, objects.pod("a", {"nvidia.com/gpu": 1}))
                    made += 1
                except ApiError as error:
                    failures.append(str(error))

        threads = [threading.Thread(target=load) for _ in range(2)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 60
        while len(seen) < 10 and time.monotonic() < deadline:
            seen.add(hook.keeper.expires_at)
            time.sleep(0.1)
        stop.set()
        for thread in threads:
            thread.join(30)
        assert (failures, hook.keeper.failures) == ([], 0)
        assert len(seen) >= 10
        assert made > 50
