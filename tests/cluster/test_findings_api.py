"""The API server and conflicts, old watches, manually created nodes and their resources."""

import pytest

from cluster import objects, waiting
from cluster.api import STRATEGIC, ApiError, Object
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane, Settings
from cluster.objects import NODES, PODS
from cluster.recordings import Recordings


@pytest.fixture(scope="module")
def cluster(module_control_plane: StartControlPlane) -> ControlPlane:
    return module_control_plane()


def test_version_is_the_locked_one(cluster: ControlPlane) -> None:
    from cluster import binaries

    assert cluster.api.get("/version")["gitVersion"] == f"v{binaries.kubernetes_version()}"


def test_a_stale_update_is_a_conflict(cluster: ControlPlane, recordings: Recordings) -> None:
    stale = cluster.api.create(NODES, objects.node("stale"))
    cluster.api.patch(f"{NODES}/stale", {"metadata": {"labels": {"new": "1"}}})
    stale["metadata"]["labels"] = {"old": "1"}
    with pytest.raises(ApiError) as refused:
        cluster.api.replace(f"{NODES}/stale", stale)
    assert refused.value.code == 409
    recordings.keep("update-stale-409", refused.value.status)
    # A patch without a resourceVersion never conflicts; with a stale one it does.
    patch: Object = {"metadata": {"resourceVersion": "1", "labels": {"old": "1"}}}
    with pytest.raises(ApiError) as refused:
        cluster.api.patch(f"{NODES}/stale", patch)
    assert refused.value.code == 409


def test_old_watches_and_pages_expire_after_a_compaction_and_a_restart(
    control_plane: StartControlPlane, recordings: Recordings
) -> None:
    """Restarts an API server, which is what makes it forget old versions."""
    cluster = control_plane()
    old = cluster.api.get(PODS)["metadata"]["resourceVersion"]
    for name in ("a", "b", "c"):
        cluster.api.create(NODES, objects.node(name))
    page = f"{NODES}?limit=1&continue={cluster.api.get(f'{NODES}?limit=1')['metadata']['continue']}"
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


def test_empty_lists_have_kind_and_version_too(
    cluster: ControlPlane, recordings: Recordings
) -> None:
    cluster.api.create(NODES, objects.node("one"))
    cluster.api.create(NODES, objects.node("two"))
    empty = "/api/v1/namespaces/nowhere/resourcequotas?limit=500"
    custom = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?limit=500"
    for name, path in (
        ("list-empty", empty),
        ("list-custom-empty", custom),
        ("list-page", f"{NODES}?limit=1"),
    ):
        answer = cluster.api.get(path)
        assert answer["kind"].endswith("List")
        assert answer["metadata"]["resourceVersion"]
        assert isinstance(answer["items"], list)
        recordings.keep(name, answer)
    assert answer["metadata"]["continue"]


def test_a_watch_starts_with_the_list_and_marks_its_end(
    cluster: ControlPlane, recordings: Recordings
) -> None:
    cluster.api.create(NODES, objects.node("listed"))
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
    path = f"{NODES}/labelled"
    versions = [
        cluster.api.patch(path, {"metadata": {"labels": labels}})["metadata"]["resourceVersion"]
        for labels in ({"of": "x"}, {"more": "1"}, {"of": None}, {"more": "2"})
    ]
    query = f"labelSelector=of=x&resourceVersion={made['metadata']['resourceVersion']}"
    events = list(cluster.api.watch(f"{NODES}?{query}", seconds=2))
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    # As it was last, with the version of the change.
    gone = events[-1]["object"]["metadata"]
    assert (gone["labels"]["of"], gone["labels"]["more"]) == ("x", "1")
    assert gone["resourceVersion"] == versions[2]


def test_a_created_node_keeps_its_status(cluster: ControlPlane) -> None:
    made = cluster.api.create(NODES, objects.node("whole", {"nvidia.com/gpu": 8}))
    assert made["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert "taints" not in made["spec"]


def test_extended_resources_are_patched_into_a_nodes_status(cluster: ControlPlane) -> None:
    cluster.api.create(NODES, objects.node("patched"))
    shown = {"nvidia.com/gpumem": "40960", "nvidia.com/gpucores": "100"}
    patch: Object = {"status": {"capacity": shown, "allocatable": shown}}
    cluster.api.patch(f"{NODES}/patched/status", patch, STRATEGIC)
    status = cluster.api.get(f"{NODES}/patched")["status"]
    assert status["allocatable"]["nvidia.com/gpumem"] == "40960"
    assert status["allocatable"]["cpu"] == "64", "the patch must leave what is not ours"
    # Not by the way of the main resource, where status is dropped without a word.
    cluster.api.patch(f"{NODES}/patched", {"status": {"allocatable": {"nvidia.com/gpumem": "1"}}})
    status = cluster.api.get(f"{NODES}/patched")["status"]
    assert status["allocatable"]["nvidia.com/gpumem"] == "40960"


def test_an_extended_resource_needs_whole_equal_limits(cluster: ControlPlane) -> None:
    def refused(**resources: Object) -> str:
        wanted = objects.pod(containers=[{**objects.container(), "resources": resources}])
        with pytest.raises(ApiError) as error:
            cluster.api.create(PODS, wanted)
        assert error.value.code == 422
        return str(error.value)

    name = "nvidia.com/gpumem"
    assert "must be an integer" in refused(limits={name: "0.5"})
    assert "Limit must be set for non overcommitable" in refused(requests={name: "1"})
    assert "must be equal to" in refused(limits={name: "2"}, requests={name: "1"})


@pytest.mark.parametrize(
    ("written", "read"),
    [("3000", "3k"), ("4096", "4096"), ("3e3", "3e3"), ("3Gi", "3Gi"), ("0", "0"), ("2000k", "2M")],
)
def test_a_quantity_is_returned_in_canonical_form(
    cluster: ControlPlane, written: str, read: str
) -> None:
    """3000 MiB of gpumem are stored as 3k, and Kubernetes accepts 3Gi."""
    name = "nvidia.com/gpumem"
    made = cluster.api.create(PODS, objects.pod(limits={name: written}, schedulerName="nobody"))
    stored = cluster.api.get(f"{PODS}/{made['metadata']['name']}")
    assert stored["spec"]["containers"][0]["resources"]["limits"][name] == read


def test_pods_are_placed_on_nodes_without_heartbeats(cluster: ControlPlane) -> None:
    """No kubelet, no lease: without the node lifecycle controller a node stays what it says."""
    cluster.api.create(NODES, objects.node("alone", {"example.com/here-alone": 8}))
    cluster.api.create(PODS, objects.pod("placed", {"example.com/here-alone": 1}))
    assert waiting.bound(cluster.api, "placed")["spec"]["nodeName"] == "alone"


def test_a_new_node_is_tainted_until_the_lifecycle_controller_finds_it_ready(
    control_plane: StartControlPlane,
) -> None:
    admission = {"disable-admission-plugins": "ServiceAccount"}
    cluster = control_plane(settings=Settings(apiserver=admission))
    made = cluster.api.create(NODES, objects.node("a"))
    assert made["spec"]["taints"] == [
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    ]


@pytest.mark.programs("controllers")
def test_the_lifecycle_controller_waits_for_the_grace_period_of_a_created_node(
    control_plane: StartControlPlane,
) -> None:
    settings = Settings(
        controllers=["node-lifecycle-controller", "serviceaccount-controller"],
        controller_manager={"node-monitor-grace-period": "24h", "node-monitor-period": "1s"},
    )
    cluster = control_plane(settings=settings)
    cluster.api.create(NODES, objects.node("a"))
    waiting.until(
        lambda: "taints" not in cluster.api.get(f"{NODES}/a")["spec"], "the taint is taken away"
    )
    waiting.until(
        lambda: cluster.api.list("/api/v1/namespaces/default/serviceaccounts"),
        "the default service account is made",
    )
    cluster.api.create(PODS, objects.pod("placed"))
    waiting.bound(cluster.api, "placed")


@pytest.mark.programs("controllers")
def test_native_quota_counts_gpumem_and_needs_its_controller(
    control_plane: StartControlPlane,
) -> None:
    settings = Settings(controllers=["resourcequota-controller", "serviceaccount-controller"])
    cluster = control_plane(settings=settings)
    quotas = "/api/v1/namespaces/default/resourcequotas"
    hard = {"requests.nvidia.com/gpumem": "4000"}
    cluster.api.create(quotas, {"metadata": {"name": "memory"}, "spec": {"hard": hard}})
    waiting.until(
        lambda: cluster.api.get(f"{quotas}/memory").get("status", {}).get("hard"),
        "the quota is in force",
    )
    waiting.until(
        lambda: cluster.api.list("/api/v1/namespaces/default/serviceaccounts"),
        "the default service account is made",
    )
    large = objects.pod("large", {"nvidia.com/gpumem": "5000"})
    waiting.until(
        lambda: cluster.api.request("POST", f"{PODS}?dryRun=All", large)[0] == 403,
        "admission knows the quota",
    )
    cluster.api.create(PODS, objects.pod("first", {"nvidia.com/gpumem": "3000"}))
    with pytest.raises(ApiError, match="exceeded quota: memory") as refused:
        cluster.api.create(PODS, objects.pod("second", {"nvidia.com/gpumem": "3000"}))
    assert refused.value.code == 403
