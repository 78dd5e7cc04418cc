"""The API server: Bindings, conflicts, old watches, and the form of a quantity."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from cluster import objects
from cluster.api import Api, ApiError, Object
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane, Settings
from cluster.objects import NODES, PODS
from cluster.recordings import Recordings

MEMORY = "nvidia.com/gpumem"


@pytest.fixture(scope="module")
def cluster(module_control_plane: StartControlPlane) -> ControlPlane:
    """Two nodes; the pods name a scheduler that is not there, so that only the test binds."""
    cluster = module_control_plane()
    for name in ("a", "b"):
        cluster.api.create(NODES, objects.node(name))
    return cluster


@pytest.fixture
def pod(cluster: ControlPlane) -> Iterator[Object]:
    pod = cluster.api.create(PODS, objects.pod(schedulerName="nobody"))
    yield pod
    cluster.api.delete(path_of(pod), grace_seconds=0)


def path_of(pod: Object) -> str:
    return f"{PODS}/{pod['metadata']['name']}"


def bind(api: Api, pod: Object, node: str = "a", **metadata: object) -> Object:
    return api.create(f"{path_of(pod)}/binding", objects.binding(pod, node, **metadata))


def refused(code: int, act: Callable[[], object]) -> Object:
    """The Status of a request that is refused with this code."""
    with pytest.raises(ApiError) as refusal:
        act()
    assert refusal.value.code == code
    return refusal.value.status


def test_a_binding_is_answered_with_201_also_where_the_node_is_missing(
    cluster: ControlPlane, recordings: Recordings, pod: Object
) -> None:
    wanted = objects.binding(pod, "nowhere")
    code, answer = cluster.api.request("POST", f"{path_of(pod)}/binding", wanted)
    assert code == 201
    recordings.keep("binding-done-201", answer)
    assert cluster.api.get(path_of(pod))["spec"]["nodeName"] == "nowhere"


def test_labels_of_a_binding_are_dropped_before_1_35(control_plane: StartControlPlane) -> None:
    """They are dropped without a message; the feature gate is PodTopologyLabelsAdmission."""
    api = control_plane(settings=Settings(emulates="1.34")).api
    pod = api.create(PODS, objects.pod(schedulerName="nobody"))
    said = {"hami-py.test/placed": "true"}
    bind(api, pod, labels=said, annotations=said)
    metadata = api.get(path_of(pod))["metadata"]
    assert metadata["annotations"] == said
    assert "labels" not in metadata


def test_a_binding_with_another_uid_and_a_second_one_are_conflicts(
    cluster: ControlPlane, pod: Object, recordings: Recordings
) -> None:
    api = cluster.api
    other = "00000000-0000-0000-0000-000000000000"
    recordings.keep("binding-wrong-uid-409", refused(409, lambda: bind(api, pod, uid=other)))
    assert "nodeName" not in api.get(path_of(pod))["spec"]
    bind(api, pod, uid=pod["metadata"]["uid"], annotations={"assigned": "first"})
    second = partial(bind, api, pod, annotations={"assigned": "second"})
    for node in ("a", "b"):
        said = refused(409, partial(second, node))
    recordings.keep("binding-already-bound-409", said)
    after = api.get(path_of(pod))
    assert after["spec"]["nodeName"] == "a"
    assert after["metadata"]["annotations"] == {"assigned": "first"}


def test_a_binding_of_a_pod_that_is_being_deleted_is_a_conflict(
    cluster: ControlPlane, recordings: Recordings
) -> None:
    wanted = objects.pod(metadata={"finalizers": ["hami-py.test/hold"]}, schedulerName="nobody")
    pod = cluster.api.create(PODS, wanted)
    cluster.api.delete(path_of(pod))
    recordings.keep("binding-deleted-409", refused(409, lambda: bind(cluster.api, pod)))
    cluster.api.patch(path_of(pod), {"metadata": {"finalizers": None}})
    recordings.keep("binding-gone-404", refused(404, lambda: bind(cluster.api, pod)))


@pytest.mark.parametrize("odd", [{"assigned": "x" * (257 << 10)}, {"no key!": "value"}])
def test_annotations_of_a_binding_are_not_validated(
    cluster: ControlPlane, pod: Object, odd: Object
) -> None:
    """A binding stores values that no other write accepts, and later writes of the pod fail."""
    path, api = path_of(pod), cluster.api
    refused(422, lambda: api.patch(path, {"metadata": {"annotations": odd}}))
    bind(api, pod, annotations=odd)
    assert api.get(path)["metadata"]["annotations"] == odd
    refused(422, lambda: api.patch(path, {"metadata": {"labels": {"a": "b"}}}))


def test_a_stale_update_is_a_conflict(cluster: ControlPlane, recordings: Recordings) -> None:
    path = f"{NODES}/stale"
    stale = cluster.api.create(NODES, objects.node("stale"))
    cluster.api.patch(path, {"metadata": {"labels": {"new": "1"}}})
    stale["metadata"]["labels"] = {"old": "1"}
    recordings.keep("update-stale-409", refused(409, lambda: cluster.api.replace(path, stale)))
    # A patch without a resourceVersion never conflicts; with a stale one it does.
    patch: Object = {"metadata": {"resourceVersion": "1", "labels": {"old": "1"}}}
    refused(409, lambda: cluster.api.patch(path, patch))


def test_old_watches_and_pages_expire_after_a_compaction_and_a_restart(
    control_plane: StartControlPlane, recordings: Recordings
) -> None:
    """Restarts an API server, which is what makes it forget old versions."""
    cluster = control_plane()
    old = cluster.api.get(PODS)["metadata"]["resourceVersion"]
    for name in ("a", "b", "c"):
        cluster.api.create(NODES, objects.node(name))
    first = cluster.api.get(f"{NODES}?limit=1")
    recordings.keep("list-page", first)
    page = f"{NODES}?limit=1&continue={first['metadata']['continue']}"
    cluster.api.create(NODES, objects.node("d"))
    cluster.compact()
    # The API server answers from its own memory: it has forgotten nothing yet.
    assert cluster.api.request("GET", page)[0] == 200
    cluster.apiserver.stop()
    cluster.apiserver.start()
    # The answer is 200 and the first event of the stream is the error.
    (event,) = cluster.api.watch(f"{PODS}?resourceVersion={old}", seconds=5)
    assert event["type"] == "ERROR"
    assert event["object"]["code"] == 410
    assert event["object"]["reason"] == "Expired"
    recordings.keep("watch-expired-410", event)
    code, answer = cluster.api.request("GET", page)
    assert code == 410
    recordings.keep("list-continue-410", answer)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("list-empty", "/api/v1/namespaces/nowhere/resourcequotas"),
        ("list-custom-empty", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
    ],
)
def test_empty_lists_have_kind_and_version_too(
    cluster: ControlPlane, recordings: Recordings, name: str, path: str
) -> None:
    answer = cluster.api.get(f"{path}?limit=500")
    assert answer["kind"].endswith("List")
    assert answer["metadata"]["resourceVersion"]
    assert answer["items"] == []
    recordings.keep(name, answer)


def test_a_watch_starts_with_the_list_and_marks_its_end(
    cluster: ControlPlane, recordings: Recordings
) -> None:
    query = "sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    seen = []
    for event in cluster.api.watch(f"{NODES}?{query}"):
        seen.append(event)
        if event["type"] == "BOOKMARK":
            break
    assert {event["type"] for event in seen[:-1]} == {"ADDED"}
    marks = seen[-1]["object"]["metadata"]["annotations"]
    assert marks == {"k8s.io/initial-events-end": "true"}
    recordings.keep("watch-bookmark", seen[-1])


def test_a_watch_with_a_selector_adds_and_deletes_as_objects_match(
    cluster: ControlPlane,
) -> None:
    made = cluster.api.create(NODES, objects.node("labelled"))
    versions = [
        cluster.api.patch(f"{NODES}/labelled", {"metadata": {"labels": labels}})["metadata"]
        for labels in ({"of": "x"}, {"more": "1"}, {"of": None}, {"more": "2"})
    ]
    query = f"labelSelector=of=x&resourceVersion={made['metadata']['resourceVersion']}"
    events = list(cluster.api.watch(f"{NODES}?{query}", seconds=2))
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    # As it was last, with the version of the change.
    gone = events[-1]["object"]["metadata"]
    assert (gone["labels"]["of"], gone["labels"]["more"]) == ("x", "1")
    assert gone["resourceVersion"] == versions[2]["resourceVersion"]


@pytest.mark.parametrize(
    ("written", "read"),
    [("3000", "3k"), ("4096", "4096"), ("3e3", "3e3"), ("3Gi", "3Gi"), ("0", "0"), ("2000k", "2M")],
)
def test_a_quantity_is_returned_in_canonical_form(
    cluster: ControlPlane, written: str, read: str
) -> None:
    """3000 MiB of gpumem are stored as 3k, and Kubernetes accepts 3Gi."""
    made = cluster.api.create(PODS, objects.pod(limits={MEMORY: written}, schedulerName="nobody"))
    (container,) = cluster.api.get(path_of(made))["spec"]["containers"]
    assert container["resources"]["limits"][MEMORY] == read


@pytest.mark.parametrize(
    ("resources", "why"),
    [
        ({"limits": {MEMORY: "0.5"}}, "must be an integer"),
        ({"requests": {MEMORY: "1"}}, "Limit must be set for non overcommitable"),
        ({"limits": {MEMORY: "2"}, "requests": {MEMORY: "1"}}, "must be equal to"),
    ],
)
def test_an_extended_resource_needs_whole_equal_limits(
    cluster: ControlPlane, resources: Object, why: str
) -> None:
    wanted = objects.pod(containers=[{**objects.container(), "resources": resources}])
    assert why in str(refused(422, lambda: cluster.api.create(PODS, wanted)))
