"""A Binding: its annotations, its UID, its conflicts, and the right to create one."""

from collections.abc import Iterator

import pytest

from cluster import objects, waiting
from cluster.api import Api, ApiError, Object
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane, Settings
from cluster.objects import NODES, PODS
from cluster.recordings import Recordings


@pytest.fixture(scope="module")
def cluster(module_control_plane: StartControlPlane) -> ControlPlane:
    """Two nodes; the pods name a scheduler that is not there, so that only the test binds."""
    cluster = module_control_plane()
    for name in ("a", "b"):
        cluster.api.create(NODES, objects.node(name))
    return cluster


@pytest.fixture
def pod(cluster: ControlPlane) -> Iterator[Object]:
    """A pod without a scheduler, with a forged assignment."""
    wanted = objects.pod(
        metadata={"annotations": {"hami-py.test/assigned": "forged", "kept": "yes"}},
        schedulerName="nobody",
    )
    pod = cluster.api.create(PODS, wanted)
    yield pod
    cluster.api.delete(f"{PODS}/{pod['metadata']['name']}", grace_seconds=0)


def bind(api: Api, pod: Object, node: str = "a", **metadata: object) -> Object:
    path = f"{PODS}/{pod['metadata']['name']}/binding"
    return api.create(path, objects.binding(pod, node, **metadata))


def now(api: Api, pod: Object) -> Object:
    return api.get(f"{PODS}/{pod['metadata']['name']}")


def test_annotations_of_a_binding_are_merged_in_the_same_write(
    cluster: ControlPlane, pod: Object
) -> None:
    before = pod["metadata"]["resourceVersion"]
    path = f"{PODS}?fieldSelector=metadata.name={pod['metadata']['name']}&resourceVersion={before}"
    bind(cluster.api, pod, annotations={"hami-py.test/assigned": "card-0"})
    bound = now(cluster.api, pod)
    assert bound["spec"]["nodeName"] == "a"
    assert bound["metadata"]["annotations"] == {"hami-py.test/assigned": "card-0", "kept": "yes"}
    # No watch ever shows one without the other.
    events = cluster.api.watch(path, seconds=2)
    changes = [event for event in events if event["type"] == "MODIFIED"]
    assert len(changes) == 1
    assert (
        changes[0]["object"]["metadata"]["resourceVersion"]
        == (bound["metadata"]["resourceVersion"])
    )


def test_a_create_and_a_binding_are_answered_with_201(
    cluster: ControlPlane, recordings: Recordings
) -> None:
    code, pod = cluster.api.request("POST", PODS, objects.pod(schedulerName="nobody"))
    assert code == 201
    path = f"{PODS}/{pod['metadata']['name']}"
    code, answer = cluster.api.request("POST", f"{path}/binding", objects.binding(pod, "a"))
    assert code == 201
    recordings.keep("binding-done-201", answer)
    cluster.api.delete(path, grace_seconds=0)


def test_labels_of_a_binding_are_merged_too(cluster: ControlPlane, pod: Object) -> None:
    bind(cluster.api, pod, labels={"hami-py.test/placed": "true"})
    assert now(cluster.api, pod)["metadata"].get("labels") == {"hami-py.test/placed": "true"}


def test_labels_of_a_binding_are_dropped_before_1_35(control_plane: StartControlPlane) -> None:
    """They are dropped without a message; the feature gate is PodTopologyLabelsAdmission."""
    api = control_plane(settings=Settings(emulates="1.34")).api
    pod = api.create(PODS, objects.pod(schedulerName="nobody"))
    said = {"hami-py.test/placed": "true"}
    bind(api, pod, labels=said, annotations=said)
    assert now(api, pod)["metadata"]["annotations"] == said
    assert "labels" not in now(api, pod)["metadata"]


def test_a_binding_with_the_uid_of_another_pod_is_a_conflict(
    cluster: ControlPlane, pod: Object, recordings: Recordings
) -> None:
    with pytest.raises(ApiError) as refused:
        bind(cluster.api, pod, uid="00000000-0000-0000-0000-000000000000")
    assert refused.value.code == 409
    recordings.keep("binding-wrong-uid-409", refused.value.status)
    assert "nodeName" not in now(cluster.api, pod)["spec"]
    bind(cluster.api, pod, uid=pod["metadata"]["uid"])
    assert now(cluster.api, pod)["spec"]["nodeName"] == "a"


def test_a_second_binding_is_a_conflict_also_to_the_same_node(
    cluster: ControlPlane, pod: Object, recordings: Recordings
) -> None:
    bind(cluster.api, pod, annotations={"hami-py.test/assigned": "first"})
    for node in ("a", "b"):
        with pytest.raises(ApiError) as refused:
            bind(cluster.api, pod, node, annotations={"hami-py.test/assigned": "second"})
        assert refused.value.code == 409
    recordings.keep("binding-already-bound-409", refused.value.status)
    after = now(cluster.api, pod)
    assert after["spec"]["nodeName"] == "a"
    assert after["metadata"]["annotations"]["hami-py.test/assigned"] == "first"


def test_a_binding_to_a_missing_node_is_accepted(cluster: ControlPlane, pod: Object) -> None:
    bind(cluster.api, pod, "nowhere")
    assert now(cluster.api, pod)["spec"]["nodeName"] == "nowhere"


def test_a_binding_of_a_pod_that_is_being_deleted_is_a_conflict(
    cluster: ControlPlane, recordings: Recordings
) -> None:
    wanted = objects.pod(metadata={"finalizers": ["hami-py.test/hold"]}, schedulerName="nobody")
    pod = cluster.api.create(PODS, wanted)
    path = f"{PODS}/{pod['metadata']['name']}"
    cluster.api.delete(path)
    with pytest.raises(ApiError) as refused:
        bind(cluster.api, pod)
    assert refused.value.code == 409
    recordings.keep("binding-deleted-409", refused.value.status)
    cluster.api.patch(path, {"metadata": {"finalizers": None}})
    with pytest.raises(ApiError) as refused:
        bind(cluster.api, pod)
    assert refused.value.code == 404
    recordings.keep("binding-gone-404", refused.value.status)


def test_a_gated_pod_cannot_be_bound(cluster: ControlPlane) -> None:
    gates = [{"name": "hami-py.test/wait"}]
    pod = cluster.api.create(PODS, objects.pod(schedulerName="nobody", schedulingGates=gates))
    with pytest.raises(ApiError, match="schedulingGates") as refused:
        bind(cluster.api, pod)
    assert refused.value.code == 409
    cluster.api.delete(f"{PODS}/{pod['metadata']['name']}", grace_seconds=0)


def test_the_right_to_bind_is_enough_to_annotate(cluster: ControlPlane, pod: Object) -> None:
    rule = {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]}
    role: Object = {"metadata": {"name": "binder"}, "rules": [rule]}
    group = "rbac.authorization.k8s.io"
    cluster.api.create(f"/apis/{group}/v1/clusterroles", role)
    cluster.api.create(
        f"/apis/{group}/v1/clusterrolebindings",
        {
            "metadata": {"name": "binder"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "binder"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "binder"}],
        },
    )
    binder = cluster.api_as("binder")
    with pytest.raises(ApiError) as refused:
        binder.patch(f"{PODS}/{pod['metadata']['name']}", {"metadata": {"annotations": {"a": "b"}}})
    assert refused.value.code == 403
    tried = f"{PODS}/{pod['metadata']['name']}/binding?dryRun=All"
    waiting.until(
        lambda: binder.request("POST", tried, objects.binding(pod, "a"))[0] == 201,
        "the right is in force",
    )
    bind(binder, pod, annotations={"hami-py.test/assigned": "card-0"})
    assert now(cluster.api, pod)["metadata"]["annotations"]["hami-py.test/assigned"] == "card-0"


def test_annotations_of_a_binding_are_not_validated(cluster: ControlPlane) -> None:
    """A binding stores values that no other write accepts, and later writes of the pod fail."""
    for odd in ({"hami-py.test/assigned": "x" * (257 << 10)}, {"no key!": "value"}):
        pod = cluster.api.create(PODS, objects.pod(schedulerName="nobody"))
        path = f"{PODS}/{pod['metadata']['name']}"
        with pytest.raises(ApiError) as refused:
            cluster.api.patch(path, {"metadata": {"annotations": odd}})
        assert refused.value.code == 422
        bind(cluster.api, pod, annotations=odd)
        assert now(cluster.api, pod)["metadata"]["annotations"] == odd
        with pytest.raises(ApiError) as refused:
            cluster.api.patch(path, {"metadata": {"labels": {"a": "b"}}})
        assert refused.value.code == 422
        cluster.api.delete(path, grace_seconds=0)
