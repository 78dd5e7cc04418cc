"""The Deployments of deploy/ under Kubernetes' own controllers: their pods, rank and budgets."""

import pytest

from cluster import waiting
from cluster.api import ApiError, Object
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane, Settings
from cluster.deployed import apply

PODS = "/api/v1/namespaces/hami-system/pods"
BUDGETS = "/apis/policy/v1/namespaces/hami-system/poddisruptionbudgets"
RANKS = "/apis/scheduling.k8s.io/v1/priorityclasses"

pytestmark = pytest.mark.tiers("kubectl", "controllers")


@pytest.fixture(scope="module")
def cluster(module_control_plane: StartControlPlane) -> ControlPlane:
    """One in which everything of deploy/ is made; no kubelet runs it."""
    settings = Settings(
        controllers=["deployment-controller", "replicaset-controller", "disruption-controller"]
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


def run(cluster: ControlPlane, pod: Object) -> None:
    """As its kubelet would report it."""
    ready = {"type": "Ready", "status": "True"}
    status = {"phase": "Running", "conditions": [ready]}
    cluster.api.patch(f"{PODS}/{pod['metadata']['name']}/status", {"status": status})


def evict(cluster: ControlPlane, pod: Object) -> None:
    """As `kubectl drain` does."""
    name = pod["metadata"]["name"]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    cluster.api.create(f"{PODS}/{name}/eviction", body)


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
def test_its_pods_are_of_the_rank_of_the_control_plane(cluster: ControlPlane, part: str) -> None:
    """Else pods of a tenant with a higher priority could have them evicted."""
    rank = cluster.api.get(f"{RANKS}/system-cluster-critical")
    for pod in replicas(cluster, part):
        assert pod["spec"]["priorityClassName"] == "system-cluster-critical"
        assert pod["spec"]["priority"] == rank["value"]
        assert pod["spec"]["preemptionPolicy"] == "PreemptLowerPriority"
