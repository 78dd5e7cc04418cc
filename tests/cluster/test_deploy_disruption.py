"""The Deployments of deploy/ under Kubernetes' own controllers: their pods, rank and budgets."""

import json
from functools import partial

import pytest

from cluster import objects, waiting
from cluster.api import ApiError, Object
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane, Settings
from cluster.deployed import apply, deployment

PODS = "/api/v1/namespaces/hami-system/pods"
BUDGETS = "/apis/policy/v1/namespaces/hami-system/poddisruptionbudgets"
RANKS = "/apis/scheduling.k8s.io/v1/priorityclasses"

pytestmark = pytest.mark.programs("kubectl", "controllers")


RANK = "system-cluster-critical"

#: As on GKE: pods of these ranks are made only where a quota is scoped to theirs.
LIMITED = {
    "apiVersion": "apiserver.config.k8s.io/v1",
    "kind": "ResourceQuotaConfiguration",
    "limitedResources": [
        {
            "resource": "pods",
            "matchScopes": [
                {
                    "scopeName": "PriorityClass",
                    "operator": "In",
                    "values": ["system-node-critical", RANK],
                }
            ],
        }
    ],
}


@pytest.fixture(scope="module")
def cluster(
    module_control_plane: StartControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> ControlPlane:
    """One in which everything of deploy/ is made; no kubelet runs it."""
    admission = tmp_path_factory.mktemp("admission") / "admission.json"
    plugin = {"name": "ResourceQuota", "configuration": LIMITED}
    admission.write_text(
        json.dumps(
            {
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "AdmissionConfiguration",
                "plugins": [plugin],
            }
        )
    )
    settings = Settings(
        apiserver={"admission-control-config-file": str(admission)},
        controllers=[
            "deployment-controller",
            "replicaset-controller",
            "disruption-controller",
            "resourcequota-controller",
        ],
    )
    cluster = module_control_plane(settings=settings)
    apply(cluster)
    return cluster


def replicas(cluster: ControlPlane, part: str) -> list[Object]:
    """Both pods of a Deployment, once they are made."""

    def look() -> list[Object] | None:
        found = cluster.api.list(f"{PODS}?labelSelector=app.kubernetes.io/name=hami-{part}")
        here = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
        return here if len(here) == 2 else None

    return waiting.until(look, f"two replicas of {part} are made")


def run(cluster: ControlPlane, pod: Object, is_ready: str = "True") -> None:
    """As its kubelet would report it."""
    ready = {"type": "Ready", "status": is_ready}
    status = {"phase": "Running", "conditions": [ready]}
    cluster.api.patch(f"{PODS}/{pod['metadata']['name']}/status", {"status": status})


def evict(cluster: ControlPlane, pod: Object) -> None:
    """As `kubectl drain` does."""
    name = pod["metadata"]["name"]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    cluster.api.create(f"{PODS}/{name}/eviction", body)


def is_evicted(cluster: ControlPlane, pod: Object) -> bool:
    """Ask once. The API server wants to be asked again if the pod changes at that moment."""
    try:
        evict(cluster, pod)
    except ApiError as error:
        if error.code != 429:
            raise
        return False
    return True


def allows(cluster: ControlPlane, part: str, count: int) -> None:
    """Wait until the controller lets so many go, of two that it has seen."""

    def look() -> bool:
        status = cluster.api.get(f"{BUDGETS}/hami-{part}").get("status", {})
        return bool(status.get("expectedPods") == 2 and status["disruptionsAllowed"] == count)

    waiting.until(look, f"the budget of {part} allows {count}")


@pytest.mark.parametrize("part", ["webhook", "scheduler"])
def test_the_last_replica_is_not_evicted(cluster: ControlPlane, part: str) -> None:
    one, other = replicas(cluster, part)
    for pod in (one, other):
        run(cluster, pod)
    allows(cluster, part, 1)
    evict(cluster, one)
    waiting.gone(cluster.api, f"{PODS}/{one['metadata']['name']}")
    # Its successor does not run yet.
    new = [
        pod for pod in replicas(cluster, part) if pod["metadata"]["uid"] != other["metadata"]["uid"]
    ]
    allows(cluster, part, 0)
    with pytest.raises(ApiError, match="disruption budget") as refusal:
        evict(cluster, other)
    assert refusal.value.code == 429
    for pod in new:
        run(cluster, pod)
    allows(cluster, part, 1)
    evict(cluster, other)


@pytest.mark.parametrize("part", ["webhook", "scheduler"])
def test_replicas_that_are_not_ready_are_evicted(cluster: ControlPlane, part: str) -> None:
    """The drain of a node does not wait for them forever, even if all of them are broken."""
    for pod in replicas(cluster, part):
        run(cluster, pod, is_ready="False")

    def is_known() -> bool:
        status = cluster.api.get(f"{BUDGETS}/hami-{part}").get("status", {})
        return bool(status.get("expectedPods") == 2 and status["currentHealthy"] == 0)

    waiting.until(is_known, f"the budget of {part} knows of none that is ready")
    for pod in replicas(cluster, part):
        waiting.until(partial(is_evicted, cluster, pod), f"a replica of {part} is evicted")
        waiting.gone(cluster.api, f"{PODS}/{pod['metadata']['name']}")


@pytest.mark.parametrize("part", ["webhook", "scheduler"])
def test_its_pods_can_use_a_limited_priority_class(cluster: ControlPlane, part: str) -> None:
    """By the quota of deploy/: in a namespace without one the same pod is refused.

    Without the class, pods of a tenant with a higher priority could have them evicted.
    """
    rank = cluster.api.get(f"{RANKS}/{RANK}")
    for pod in replicas(cluster, part):
        assert pod["spec"]["priorityClassName"] == RANK
        assert pod["spec"]["priority"] == rank["value"]
        assert pod["spec"]["preemptionPolicy"] == "PreemptLowerPriority"
    account = {"metadata": {"name": f"hami-{part}"}}
    cluster.api.create("/api/v1/namespaces/default/serviceaccounts", account)
    pod = {**deployment(part)["spec"]["template"], "apiVersion": "v1", "kind": "Pod"}
    pod["metadata"] = {**pod["metadata"], "name": "elsewhere"}
    with pytest.raises(ApiError, match="insufficient quota to match these scopes"):
        cluster.api.create(objects.PODS, pod)
