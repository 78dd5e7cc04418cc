"""Other mutating webhooks beside ours at a real API server: before it, and after it.

The API server asks them in the order of their configurations' names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from cluster import admission, objects, waiting
from cluster.admission import CONFIGURATIONS
from cluster.api import ApiError, Object
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane
from cluster.objects import PODS
from cluster.recorder import Call, Recorder
from cluster.webhooks import NAME, webhook

MUTATING, _ = CONFIGURATIONS

#: Names of configurations that come before ours, and after it.
BEFORE, AFTER = "another", "kyverno"
assert BEFORE < NAME < AFTER

ASKS = {"limits": {"nvidia.com/gpumem": "3000"}}


@pytest.fixture(scope="module")
def cluster(module_control_plane: StartControlPlane) -> Iterator[ControlPlane]:
    cluster = module_control_plane()
    with webhook(cluster):
        yield cluster


@contextlib.contextmanager
def other(
    cluster: ControlPlane, name: str, change: Callable[[Object], list[Object]], **wanted: object
) -> Iterator[None]:
    """One that changes all pods by what ``change`` says of them."""

    def answer(call: Call) -> Object:
        return admission.patched(call, *change(call.body["request"]["object"]))

    serving = cluster.authority.issue("webhook", hosts=["127.0.0.1"])
    with Recorder({"/mutate": answer}, serving) as hook:
        url = {"url": f"{hook.url}/mutate"}
        entry = admission.webhook(cluster.authority.certificate, url, **wanted)
        del entry["matchConditions"]
        cluster.api.create(MUTATING, {"metadata": {"name": name}, "webhooks": [entry]})

        def is_asked() -> bool:
            with contextlib.suppress(ApiError):
                create(cluster, objects.pod("first"))
            return bool(hook.calls())

        waiting.until(is_asked, "the other webhook is asked")
        try:
            yield
        finally:
            cluster.api.delete(f"{MUTATING}/{name}")


def create(cluster: ControlPlane, pod: Object) -> Object:
    return cluster.api.create(f"{PODS}?dryRun=All", pod)


def refused(cluster: ControlPlane, pod: Object) -> str:
    with pytest.raises(ApiError) as refusal:
        create(cluster, pod)
    assert refusal.value.code == 422
    return str(refusal.value.status["message"])


def asks_for_a_card(pod: Object) -> list[Object]:
    return [{"op": "add", "path": "/spec/containers/0/resources", "value": ASKS}]


def undoes(pod: Object) -> list[Object]:
    seen = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
    return [
        {"op": "add", "path": "/metadata/labels", "value": {"team": "a"}},
        {"op": "add", "path": "/spec/containers/0/env", "value": [seen]},
    ]


def is_complete(pod: Object) -> None:
    (container,) = pod["spec"]["containers"]
    assert pod["metadata"]["labels"]["hami.io/pod"] == "true"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert container["env"] == [{"name": "CUDA_DEVICE_MEMORY_LIMIT", "value": "3000m"}]


def test_a_card_requested_by_another_webhook(cluster: ControlPlane) -> None:
    with other(cluster, BEFORE, asks_for_a_card):
        is_complete(create(cluster, objects.pod("a")))
    # Our mutating webhook ignores that pod, so it has no assigned card and no label.
    with other(cluster, AFTER, asks_for_a_card):
        said = refused(cluster, objects.pod("a"))
    assert "metadata.labels[hami.io/pod]" in said
    assert "spec.containers[0].resources.limits[nvidia.com/gpu]" in said


def test_changes_that_another_webhook_reverts(cluster: ControlPlane) -> None:
    pod = objects.pod("a", containers=[{**objects.container(), "resources": ASKS}])
    # Once ours is asked again, and has the last word.
    with other(cluster, AFTER, undoes):
        is_complete(create(cluster, pod))
    with other(cluster, AFTER, undoes, reinvocationPolicy="IfNeeded"):
        said = refused(cluster, pod)
    assert "metadata.labels[hami.io/pod]" in said
    assert "spec.containers[0].env[NVIDIA_VISIBLE_DEVICES]" in said
