"""Attempts of a tenant who may create and change pods to get more, at a real API server.

The webhook, the policy and the extender are those of deploy/. One node has one card, so a card that
is assigned twice is noticed at once.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from cluster import objects, waiting
from cluster.admission import CONFIGURATIONS
from cluster.api import MERGE, Api, ApiError, Object
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane
from cluster.extended import assignment
from cluster.objects import PODS
from cluster.webhooks import LEFT_OUT, NAME, tenancy, tenant
from hami_py.scheduler.service import Scheduler

GPU = {"nvidia.com/gpu": 1}
LIMITS = "/usr/local/hami/limits"


@pytest.fixture(scope="module")
def both(module_control_plane: StartControlPlane) -> Iterator[tuple[ControlPlane, Scheduler]]:
    with tenancy(module_control_plane) as both:
        yield both


@pytest.fixture
def api(both: tuple[ControlPlane, Scheduler]) -> Iterator[Api]:
    with tenant(*both) as api:
        yield api


def refused(api: Api, pod: Object, path: str = PODS) -> str:
    with pytest.raises(ApiError) as refusal:
        api.create(f"{path}?dryRun=All", pod)
    assert refusal.value.code == 422
    return str(refusal.value.status["message"])


def mine(**fields: Any) -> Object:
    """A pod with a GPU whose container has these fields."""
    return objects.pod("mine", containers=[objects.container(limits=GPU, **fields)])


def changed_by_us(api: Api, path: str, metadata: Object) -> str:
    with pytest.raises(ApiError) as refusal:
        api.patch(path, {"metadata": metadata}, MERGE)
    assert refusal.value.code == 422
    assert "only hami-py may write it" in str(refusal.value)
    return str(refusal.value)


def nobody_else_gets_the_card(api: Api) -> None:
    api.create(PODS, objects.pod("second", GPU))
    waiting.unschedulable(api, "second", "in use")


def test_an_exempt_namespace_has_its_cards_counted(api: Api) -> None:
    pod = objects.pod("mine", GPU)
    pod["spec"]["containers"][0]["env"] = [{"name": "LD_PRELOAD", "value": "/x.so"}]
    made = api.create(LEFT_OUT, pod)
    assert made["spec"]["containers"][0]["env"] == pod["spec"]["containers"][0]["env"]
    assert "labels" not in made["metadata"]
    path = f"{LEFT_OUT}/mine"
    waiting.until(lambda: api.get(path)["spec"].get("nodeName"), "it is bound")
    # The binding has given it the label, without which the scheduler would not see it.
    assert api.get(path)["metadata"]["labels"] == {"hami.io/pod": "true"}
    changed_by_us(api, path, {"labels": {"hami.io/pod": None}})
    nobody_else_gets_the_card(api)


def test_a_pod_with_a_card_keeps_its_label_and_card(api: Api) -> None:
    made = api.create(PODS, objects.pod("mine", GPU))
    waiting.bound(api, "mine")
    path = f"{PODS}/mine"
    for labels in ({"hami.io/pod": None}, {"hami.io/pod": "no"}):
        for where in (path, f"{path}/status"):
            assert "metadata.labels[hami.io/pod]" in changed_by_us(api, where, {"labels": labels})
    whole = api.get(path)
    del whole["metadata"]["labels"]
    for where in ("", "/status"):
        with pytest.raises(ApiError, match="only hami-py may write it"):
            api.replace(path + where, whole)
    # These two take nothing but what they are there for.
    for where in ("ephemeralcontainers", "resize"):
        with contextlib.suppress(ApiError):
            api.replace(f"{path}/{where}", whole)
    assert api.get(path)["metadata"]["labels"] == made["metadata"]["labels"]
    api.patch(path, {"metadata": {"labels": {"app": "a"}}})
    nobody_else_gets_the_card(api)


def test_annotations_of_the_binding_cannot_be_changed(api: Api) -> None:
    asked = {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 40}
    api.create(PODS, objects.pod("mine", asked))
    waiting.bound(api, "mine")
    path = f"{PODS}/mine"
    before = api.get(path)["metadata"]["annotations"]
    assert before["hami.io/gpumem.main"] == "4000m"
    for key, value in (
        ("hami.io/gpumem.main", "9999m"),
        ("hami.io/gpumem.main", None),
        ("hami.io/gpumem-0.main", "9999m"),
        ("hami.io/assignment", None),
        ("hami.io/assignment", "{}"),
    ):
        for where in (path, f"{path}/status"):
            said = changed_by_us(api, where, {"annotations": {key: value}})
            assert f"metadata.annotations[{key}]" in said
    api.patch(path, {"metadata": {"annotations": {"mine": "x", "hami.io/cordon": "y"}}})
    now = api.get(path)["metadata"]["annotations"]
    assert now == {**before, "mine": "x", "hami.io/cordon": "y"}
    assert assignment(api, "mine").containers["main"][0].memory_mib == 4000


#: In the order of keys, and of the policy's text, ours come among others'.
AROUND = {"a": "", "hami.io/gpume": "", "hami.io/h": "", "x.hami.io/gpumem.main": "", "z": ""}


@pytest.mark.parametrize(
    "key",
    [
        "hami.io/assignment",
        "hami.io/gpumem",
        "hami.io/gpumem.main",
        "hami.io/gpumem-15.a-b",
        f"hami.io/gpumem.{'a' * 39}_{16 * '0'}",
    ],
)
def test_our_annotations_are_found_among_others(api: Api, key: str) -> None:
    for value in ("", "1m", f", {key}: 1m", f"{{{key}: 1m}}"):
        forged = objects.pod("mine", metadata={"annotations": {**AROUND, key: value}})
        assert f"metadata.annotations[{key}]: only hami-py may write it" in refused(api, forged)
    api.create(PODS, objects.pod("mine", metadata={"annotations": AROUND}))
    for where in ("", "/status"):
        path = f"{PODS}/mine{where}"
        assert key in changed_by_us(api, path, {"annotations": {key: "1m", "a": None}})


def test_values_that_mention_our_names_are_allowed(api: Api) -> None:
    says = ", hami.io/gpumem.main: 1m, hami.io/assignment: {}, hami.io/gpumem"
    others = {**AROUND, "b": f"{{{says}}}", "c": '{"hami.io/gpumem.main":"1m"}'}
    api.create(PODS, objects.pod("mine", metadata={"annotations": {**AROUND, "b": says}}))
    for annotations in (others, dict.fromkeys(others)):
        api.patch(f"{PODS}/mine", {"metadata": {"annotations": annotations}}, MERGE)
    assert "annotations" not in api.get(f"{PODS}/mine")["metadata"]


def test_thousands_of_mentions_of_our_names_are_refused(api: Api) -> None:
    said = {"a": " ".join(f"hami.io/gpumem{i:05}" for i in range(5_000))}
    wanted = objects.pod("mine", metadata={"annotations": said})
    assert "hami.io/gpumem occurs in them thousands of times" in refused(api, wanted)


@pytest.mark.parametrize(
    "most",
    [
        pytest.param({f"a{i:05}": "" for i in range(30_000)}, id="many"),
        pytest.param({"a": "x" * 250_000}, id="long"),
        pytest.param({"a": " ".join(f"hami.io/gpumem{i:05}" for i in range(2_400))}, id="said"),
    ],
)
def test_a_pod_may_have_as_many_annotations_as_are_stored(api: Api, most: dict[str, str]) -> None:
    """An expression that costs too much would be an error, and the pod refused."""
    api.create(PODS, objects.pod("mine", metadata={"annotations": most}))
    path = f"{PODS}/mine"
    api.patch(f"{path}/status", {"status": {"phase": "Running"}}, MERGE)
    api.patch(path, {"metadata": {"annotations": {"b": "y"}}}, MERGE)
    changed_by_us(api, path, {"annotations": {"hami.io/gpumem.main": "1m"}})


@pytest.mark.parametrize("labels", [{"hami.io/pod": "no"}, {"hami.io/pod": ""}, {"app": "a"}, {}])
def test_a_binding_cannot_change_the_pod_label(api: Api, labels: dict[str, str]) -> None:
    """A binding's labels replace the pod's own labels, and users other than a scheduler may have
    the right to bind.
    """
    api.create(PODS, objects.pod("mine", GPU, schedulingGates=[{"name": "test/wait"}]))
    bound = objects.binding({"metadata": {"name": "mine"}}, "a", labels=labels)
    for path in (f"{PODS}/mine/binding", "/api/v1/namespaces/default/bindings"):
        with pytest.raises(ApiError) as refusal:
            api.create(f"{path}?dryRun=All", bound)
        # Else it is Kubernetes, which does not bind what is gated.
        is_ours = "metadata.labels[hami.io/pod]: only hami-py may write it" in str(refusal.value)
        assert is_ours == ("hami.io/pod" in labels), refusal.value


def test_a_binding_may_set_the_pod_label(api: Api) -> None:
    for name, labels in (("one", {"hami.io/pod": "true"}), ("two", {"app": "a"})):
        made = api.create(PODS, objects.pod(name, schedulerName="nobody"))
        api.create(f"{PODS}/{name}/binding", objects.binding(made, "a", labels=labels))
        assert api.get(f"{PODS}/{name}")["metadata"]["labels"] == labels


def test_ephemeral_containers_are_reviewed(api: Api) -> None:
    for name, limits in (("mine", GPU), ("plain", {})):
        api.create(PODS, objects.pod(name, limits, schedulerName=None))

    def debug(pod: str, **fields: object) -> Object:
        added = {"name": "debug", "image": objects.IMAGE, **fields}
        return api.patch(
            f"{PODS}/{pod}/ephemeralcontainers",
            {"spec": {"ephemeralContainers": [added]}},
            "application/strategic-merge-patch+json",
        )

    bold = {"securityContext": {"privileged": True}}
    with pytest.raises(ApiError) as refusal:
        debug("mine", **bold)
    assert refusal.value.code == 422
    assert "spec.ephemeralContainers[0].securityContext.privileged" in str(refusal.value)
    with pytest.raises(ApiError, match=r"ephemeralContainers\[0\].terminationMessagePath"):
        debug("mine", terminationMessagePath=LIMITS)
    with pytest.raises(ApiError, match="NVIDIA_VISIBLE_DEVICES"):
        debug("mine", env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])
    # Kubernetes itself gives them no cards.
    with pytest.raises(ApiError, match="cannot be set for an Ephemeral Container") as refusal:
        debug("mine", resources={"limits": GPU})
    assert refusal.value.code == 422
    assert debug("mine", command=["sh"])["spec"]["ephemeralContainers"]
    assert debug("plain", **bold)["spec"]["ephemeralContainers"]


@pytest.mark.parametrize(
    "pod",
    [
        {"containers": [{"resources": {"requests": {"nvidia.com/gpumem": "3000"}}}]},
        {"resources": {"limits": {"nvidia.com/gpu": "1"}}},
    ],
)
def test_kubernetes_itself_refuses_a_card_that_is_not_in_a_containers_limits(
    api: Api, pod: Object
) -> None:
    wanted = objects.pod("mine")
    for container in pod.pop("containers", []):
        wanted["spec"]["containers"][0] |= container
    wanted["spec"] |= pod
    refused(api, wanted)


@pytest.mark.parametrize(
    ("path", "mounted", "said"),
    [
        ("/", {"readOnly": True}, "recursiveReadOnly: Enabled"),
        ("/proc/1/root/run/cdi", {}, "recursiveReadOnly: Enabled"),
        ("/sys/fs/cgroup/x", {}, "with readOnly"),
        ("/", {"readOnly": True, "recursiveReadOnly": "Enabled"}, None),
        # Kubernetes itself: through a link, `..` leads elsewhere than it reads.
        ("/var/run/../var/lib/hami", {}, "must not contain '..'"),
    ],
)
def test_the_nodes_directories_are_mounted_read_only_or_not_at_all(
    api: Api, path: str, mounted: Object, said: str | None
) -> None:
    wanted = mine(volumeMounts=[{"name": "v", "mountPath": "/host", **mounted}])
    wanted["spec"]["volumes"] = [{"name": "v", "hostPath": {"path": path}}]
    if said is not None:
        assert said in refused(api, wanted)
        return
    (made,) = api.create(f"{PODS}?dryRun=All", wanted)["spec"]["containers"]
    assert made["volumeMounts"][0]["recursiveReadOnly"] == "Enabled"


def test_the_configurations_are_those_of_deploy(api: Api) -> None:
    for path in CONFIGURATIONS:
        for entry in api.get(f"{path}/{NAME}")["webhooks"]:
            assert entry["failurePolicy"] == "Fail"
            assert entry["objectSelector"] == {}
