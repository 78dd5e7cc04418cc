"""The admission policies of deploy/: who may write about cards, and which cards a pod names."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from cluster import objects, waiting
from cluster.api import Api, ApiError, Object
from cluster.charts import one, rendered
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane
from cluster.deployed import apply
from cluster.objects import NODES, PODS

pytestmark = pytest.mark.programs("kubectl")

AGENT = "system:serviceaccount:hami-system:hami-node"

#: A right to change everything, which is not that of a cluster-admin's group.
EDITOR: list[Object] = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]


RESIZED = objects.pod("new", metadata={"annotations": {"hami.io/resize": "{}"}})


@pytest.fixture(scope="module")
def cluster(module_control_plane: StartControlPlane) -> ControlPlane:
    """A cluster with deploy/, two nodes, and users who may change everything by RBAC."""
    cluster = module_control_plane()
    apply(cluster)
    # The webhooks do not run here.
    for kind in ("mutating", "validating"):
        path = f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/hami-webhook"
        cluster.api.delete(path)
    for name in ("a", "b"):
        cluster.api.create(NODES, objects.node(name))
    role = {"metadata": {"name": "editor"}, "rules": EDITOR}
    cluster.api.create(f"{objects.RBAC}/clusterroles", role)
    users = [{"kind": "User", "name": user} for user in ("editor", "resizer")]
    bound = objects.grant("editor", "editor", *users)
    cluster.api.create(f"{objects.RBAC}/clusterrolebindings", bound)
    editor, own = cluster.api_as("editor"), cluster.api_of_node_agent(AGENT, "a")
    cards = annotated("hami.io/cards", "{}")
    forces: list[tuple[Callable[[], Any], str]] = [
        (lambda: editor.patch(f"{NODES}/a?dryRun=All", cards), "node agent may write it"),
        (lambda: own.patch(f"{NODES}/b?dryRun=All", cards), "may only write to that node"),
        (lambda: cluster.api.create(f"{PODS}?dryRun=All", naming("all")), "requests no card"),
        (lambda: editor.create(f"{PODS}?dryRun=All", RESIZED), "only members of"),
    ]
    for act, why in forces:
        waiting.until(partial(_is_refused, act, why), f"in force: {why}")
    return cluster


def _is_refused(act: Callable[[], Any], why: str) -> bool:
    return why in refusal(act)


def refusal(act: Callable[[], Any]) -> str:
    """Why it is refused; empty if it is not."""
    try:
        act()
    except ApiError as error:
        return str(error)
    return ""


def annotated(key: str, value: str | None) -> Object:
    return {"metadata": {"annotations": {key: value}}}


@pytest.fixture
def pod(cluster: ControlPlane) -> Any:
    """A pod on node a."""
    cluster.api.create(PODS, objects.pod("one", nodeName="a"))
    yield f"{PODS}/one"
    cluster.api.delete(f"{PODS}/one", grace_seconds=0)


def test_only_a_group_may_request_new_limits(cluster: ControlPlane, pod: str) -> None:
    resize = annotated("hami.io/resize", "{}")
    for path in (pod, f"{pod}/status"):
        assert "only members of hami:resizers or system:masters may write it" in refusal(
            partial(cluster.api_as("editor").patch, path, resize)
        )
    cluster.api_as("resizer", "hami:resizers").patch(pod, resize)
    # Others may change the pod, and not this.
    cluster.api_as("editor").patch(pod, annotated("mine", "1"))
    assert refusal(lambda: cluster.api_as("editor").patch(pod, annotated("hami.io/resize", None)))
    made = objects.pod("two", metadata=resize["metadata"])
    assert refusal(lambda: cluster.api_as("editor").create(PODS, made))


@pytest.mark.programs("helm")
def test_an_empty_list_of_groups_is_nobody(cluster: ControlPlane, pod: str) -> None:
    policy = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/hami-resize"
    before = cluster.api.get(policy)["spec"]
    rendering = rendered("--set-json", "policies.resizeGroups=[]")
    made = one(rendering, "ValidatingAdmissionPolicy", "hami-resize")
    cluster.api.patch(policy, {"spec": made["spec"]})
    for user in (cluster.api_as("resizer", "hami:resizers"), cluster.api):
        act = partial(user.patch, f"{pod}?dryRun=All", annotated("hami.io/resize", "{}"))
        waiting.until(partial(_is_refused, act, "only members of no group may write it"), "nobody")
    cluster.api.patch(policy, {"spec": before})
    waiting.until(lambda: refusal(act) == "", "the groups may again")


def test_only_the_agent_may_describe_the_cards(cluster: ControlPlane) -> None:
    cards = annotated("hami.io/cards", "{}")
    for path in (f"{NODES}/a", f"{NODES}/a/status"):
        assert "only hami-py's node agent may write it" in refusal(
            partial(cluster.api_as("editor").patch, path, cards)
        )
    agent(cluster, "a").patch(f"{NODES}/a", cards)
    cluster.api_as("editor").patch(f"{NODES}/a", annotated("mine", "1"))
    why = refusal(
        lambda: cluster.api_as("editor").create(NODES, objects.node("c", **cards["metadata"]))
    )
    assert why


def agent(cluster: ControlPlane, node: str) -> Api:
    return cluster.api_of_node_agent(AGENT, node)


AMOUNTS = {"nvidia.com/gpumem": "81920", "nvidia.com/gpucores": "200"}


def test_an_agent_writes_to_its_own_node(cluster: ControlPlane, pod: str) -> None:
    own = agent(cluster, "a")
    own.patch(f"{NODES}/a", annotated("hami.io/cards", "{}"))
    own.patch(f"{NODES}/a/status", {"status": {"capacity": AMOUNTS, "allocatable": AMOUNTS}})
    own.patch(pod, annotated("hami.io/assignment", "{}"))
    assert cluster.api.get(f"{NODES}/a")["status"]["capacity"]["nvidia.com/gpumem"] == "81920"


FOREIGN: list[tuple[str, Object]] = [
    (f"{NODES}/a", annotated("hami.io/cards", "{ }")),
    (f"{NODES}/a/status", {"status": {"capacity": {"nvidia.com/gpumem": "1"}}}),
    (f"{PODS}/one", annotated("hami.io/assignment", "{ }")),
]


@pytest.mark.parametrize(("path", "patch"), FOREIGN, ids=["node", "status", "pod"])
def test_an_agent_cannot_write_to_another_node(
    cluster: ControlPlane, pod: str, path: str, patch: Object
) -> None:
    for other in (agent(cluster, "b"), cluster.api_as(AGENT)):
        assert "may only write to that node and its pods" in refusal(
            partial(other.patch, path, patch)
        )


ADDRESS = {"type": "InternalIP", "address": "10.0.0.1"}

TOO_MUCH: list[tuple[str, Object, str]] = [
    (f"{NODES}/a", annotated("mine", "2"), "may only change hami.io/cards"),
    (f"{NODES}/a", {"metadata": {"labels": {"mine": "1"}}}, "may not change labels"),
    (f"{NODES}/a", {"spec": {"unschedulable": True}}, "may not change labels and the spec"),
    (f"{NODES}/a/status", {"status": {"capacity": {"cpu": "1"}}}, "only change the amounts"),
    (f"{NODES}/a/status", {"status": {"conditions": []}}, "only change the amounts"),
    (f"{NODES}/a/status", {"status": {"addresses": [ADDRESS]}}, "only change the amounts"),
    (f"{PODS}/one", {"metadata": {"labels": {"mine": "1"}}}, "may not change labels"),
]


@pytest.mark.parametrize(("path", "patch", "why"), TOO_MUCH)
def test_an_agent_writes_only_what_it_needs(
    cluster: ControlPlane, pod: str, path: str, patch: Object, why: str
) -> None:
    assert why in refusal(lambda: agent(cluster, "a").patch(path, patch))


def naming(value: str | None, limits: dict[str, int] | None = None, **more: Any) -> Object:
    variable: Object = {"name": "NVIDIA_VISIBLE_DEVICES"}
    variable |= {"value": value} if value is not None else {"valueFrom": more.pop("source")}
    return objects.pod("names", containers=[objects.container("main", limits, env=[variable])])


FIELD = {"fieldRef": {"fieldPath": "metadata.annotations['mine']"}}


@pytest.mark.parametrize(
    "pod",
    [
        *(naming("all"), naming("GPU-1"), naming("0"), naming(None, source=FIELD)),
        # Kubernetes accepts a request for no device.
        *(naming("all", {"nvidia.com/gpu": 0}), naming("all", {"nvidia.com/gpucores": 0})),
    ],
    ids=["all", "uuid", "index", "field", "no devices", "no cores"],
)
def test_a_container_that_requests_no_card_names_none(cluster: ControlPlane, pod: Object) -> None:
    for kind in ("containers", "initContainers"):
        changed = {**pod, "spec": {**objects.pod("names")["spec"], kind: pod["spec"]["containers"]}}
        if kind == "initContainers":
            changed["spec"]["initContainers"][0]["name"] = "init"
        assert "has NVIDIA_VISIBLE_DEVICES and requests no card" in refusal(
            partial(cluster.api.create, f"{PODS}?dryRun=All", changed)
        )


def mounting(path: str, limits: dict[str, int] | None = None) -> Object:
    mounts = [{"name": "null", "mountPath": path}]
    container = objects.container("main", limits, volumeMounts=mounts)
    volumes = [{"name": "null", "hostPath": {"path": "/dev/null", "type": "CharDevice"}}]
    return objects.pod("mounts", containers=[container], volumes=volumes)


def test_a_container_that_requests_no_card_names_none_by_a_mount(cluster: ControlPlane) -> None:
    create = partial(cluster.api.create, f"{PODS}?dryRun=All")
    for path in ("/var/run/nvidia-container-devices/all", "/var//run/nvidia-container-devices/0"):
        assert "has a mount in nvidia-container-devices and requests no card" in refusal(
            partial(create, mounting(path))
        )
        # The webhook refuses this one.
        create(mounting(path, {"nvidia.com/gpu": 1}))
    create(mounting("/var/run/null"))


@pytest.mark.parametrize("value", ["", "none", "void"])
def test_a_container_may_say_that_it_wants_no_card(cluster: ControlPlane, value: str) -> None:
    cluster.api.create(f"{PODS}?dryRun=All", naming(value))


def test_a_container_that_requests_a_card_is_left_to_the_webhook(cluster: ControlPlane) -> None:
    cluster.api.create(f"{PODS}?dryRun=All", naming("all", {"nvidia.com/gpu": 1}))


def test_a_namespace_may_be_allowed_to_see_all_cards(cluster: ControlPlane) -> None:
    labels = {"hami.io/visible-devices": "allow"}
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": "monitoring", "labels": labels}})
    pods = "/api/v1/namespaces/monitoring/pods?dryRun=All"
    waiting.until(lambda: refusal(lambda: cluster.api.create(pods, naming("all"))) == "", "it may")


def test_kai_names_the_card_of_its_container(cluster: ControlPlane) -> None:
    """By a ConfigMap, in a namespace where others allocate."""
    labels = {"hami.io/owner": "others"}
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": "kai", "labels": labels}})
    source = {"configMapKeyRef": {"name": "kai", "key": "cards"}}
    create = partial(cluster.api.create, "/api/v1/namespaces/kai/pods?dryRun=All")
    kai: Object = {"metadata": {"name": "names", "annotations": {"gpu-fraction": "0.5"}}}
    waiting.until(
        lambda: not refusal(partial(create, naming(None, source=source) | kai)), "KAI may"
    )
    another = {**kai["metadata"]["annotations"], "gpu-fraction-container-name": "another"}
    for refused in (
        naming(None, source=source),
        naming("all") | kai,
        naming(None, source=FIELD) | kai,
        naming(None, source=source) | {"metadata": {"name": "names", "annotations": another}},
    ):
        assert "requests no card" in refusal(partial(create, refused))
    elsewhere = partial(cluster.api.create, f"{PODS}?dryRun=All")
    assert "requests no card" in refusal(partial(elsewhere, naming(None, source=source) | kai))


def test_the_pods_of_nvidias_operator_see_all_cards(cluster: ControlPlane) -> None:
    namespace = {"metadata": {"name": "gpu-operator"}}
    cluster.api.create("/api/v1/namespaces", namespace)
    cluster.api.create("/api/v1/namespaces/gpu-operator/pods?dryRun=All", naming("all"))
