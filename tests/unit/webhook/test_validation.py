"""Changes of other webhooks to a pod after our mutation, checked when all webhooks are done."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from unit.pods.build import Manifest, container, manifest
from unit.webhook.test_review import ask, patched, reviewer

Change = Callable[[Manifest], Any]


def completed() -> Manifest:
    pod = manifest(container(limits={"gpumem": 3000}))
    return patched(pod, ask(reviewer(), "mutate", pod))


def first(pod: Manifest) -> Manifest:
    found: Manifest = pod["spec"]["containers"][0]
    return found


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda pod: pod["metadata"].pop("labels"), "metadata.labels[hami.io/pod]"),
        (
            lambda pod: pod["metadata"]["labels"].update({"hami.io/pod": "no"}),
            "metadata.labels[hami.io/pod]",
        ),
        (
            lambda pod: pod["spec"].update(schedulerName="default-scheduler"),
            "spec.schedulerName",
        ),
        (
            lambda pod: first(pod)["resources"]["limits"].pop("nvidia.com/gpu"),
            "spec.containers[0].resources.limits[nvidia.com/gpu]",
        ),
        (
            lambda pod: first(pod)["env"].append(
                {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
            ),
            "spec.containers[0].env[NVIDIA_VISIBLE_DEVICES]",
        ),
        (
            lambda pod: first(pod)["env"].append(
                {"name": "CUDA_DEVICE_MEMORY_LIMIT", "value": "9g"}
            ),
            "spec.containers[0].env[CUDA_DEVICE_MEMORY_LIMIT]",
        ),
        (
            lambda pod: pod["metadata"].update(annotations={"hami.io/assignment": "{}"}),
            "metadata.annotations[hami.io/assignment]",
        ),
    ],
)
def test_a_removed_change_of_ours_is_refused(change: Change, field: str) -> None:
    pod = completed()
    assert ask(reviewer(), "validate", pod)["allowed"]
    change(pod)
    response = ask(reviewer(), "validate", pod)
    assert not response["allowed"]
    assert f"{field}: " in response["status"]["message"]
    assert "another webhook" in response["status"]["message"]
    # The mutating webhook is called first, and restores all of it.
    assert ask(reviewer(), "validate", patched(pod, ask(reviewer(), "mutate", pod)))["allowed"]


def test_a_card_requested_after_our_mutation_is_refused() -> None:
    """Of such a pod the webhook that mutates has never heard."""
    response = ask(reviewer(), "validate", manifest(container(limits={"gpumem": 3000})))
    assert "metadata.labels[hami.io/pod]" in response["status"]["message"]
    assert "spec.schedulerName" in response["status"]["message"]


def test_additions_of_other_webhooks_are_accepted() -> None:
    pod = completed()
    pod["metadata"]["labels"]["team"] = "a"
    first(pod)["env"] += [{"name": "CUDA_DEVICE_MEMORY_LIMIT", "value": "1000m"}]
    pod["spec"]["containers"].append(container("proxy"))
    assert ask(reviewer(), "validate", pod)["allowed"]
    plain = manifest(container(limits={"gpu": 0}))
    assert ask(reviewer(), "validate", plain)["allowed"]


def test_other_defaults_refuse_nothing() -> None:
    """While settings roll out, one replica may mutate by the old ones and another validate."""
    pod = completed()
    for settings in ({"default_cores": 30}, {"core_policy": "force"}, {"default_memory_mib": 500}):
        assert ask(reviewer(**settings), "validate", copy.deepcopy(pod))["allowed"]
