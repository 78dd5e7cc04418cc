"""A hundred pods at once on one node: each gets its card, and no card is over-allocated."""

from collections.abc import Iterator

import pytest

from cluster import audit_log, card_owners, crowd, waiting
from cluster.api import Object
from cluster.card_watch import Watch
from cluster.conftest import StartWhole
from cluster.limited_pods import install, start_first
from cluster.node_remains import INTERRUPTED, check_nothing_remains
from cluster.objects import PODS
from cluster.whole import WholeCluster
from support.tiers import amount

pytestmark = [
    pytest.mark.programs("controllers", "kubectl", "node"),
    # A hundred pods keep both processors busy for minutes. Beside another cluster, containers did
    # not start within the kubelet's two minutes.
    pytest.mark.alone,
    pytest.mark.tier("torture"),
]


@pytest.fixture(scope="module")
def cluster(whole_cluster: StartWhole) -> WholeCluster:
    """A cluster with hami and eight cards, which logs who writes what."""
    cluster = whole_cluster(cards=crowd.CARDS, kubelet_config=crowd.KUBELET, audits=True)
    install(cluster)
    start_first(cluster)
    return cluster


@pytest.fixture(autouse=True)
def _no_crowd(cluster: WholeCluster) -> Iterator[None]:
    """A crowd that has failed is not the next round's."""
    yield
    crowd.delete(cluster)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("round", range(amount("crowds")))
def test_a_hundred_pods_at_once_get_their_cards(cluster: WholeCluster, round: int) -> None:
    """Takes 25 s for the cluster and a minute for a crowd: nothing else has so many at once."""
    with Watch(cluster):
        crowd.create(cluster, retries=0)
        pods = crowd.running(cluster)
        assert len(cluster.api.list(PODS)) == len(pods), "no pod has failed"
        card_owners.check_agreement(cluster, pods)
    check_writes(cluster, pods)
    crowd.delete(cluster)
    check_nothing_remains(cluster)


@pytest.mark.timeout(900)
def test_a_crowd_that_is_deleted_while_it_starts_leaves_nothing(cluster: WholeCluster) -> None:
    """Also pods with two cards, of which one may be prepared."""
    with Watch(cluster):
        crowd.create(cluster)
        waiting.until(lambda: card_owners.ledger(cluster.node), "the first container starts")
        crowd.delete(cluster)
    check_nothing_remains(cluster, besides=INTERRUPTED)


def check_writes(cluster: WholeCluster, pods: list[Object]) -> None:
    """Check what hami wrote for each pod, beside events: the binding, and nothing else."""
    names = [pod["metadata"]["name"] for pod in pods]
    written = audit_log.writes_per_pod(cluster.control_plane, audit_log.HAMI, names)
    for name, writes in written.items():
        told = [write.resource for write in writes if write.resource != "events"]
        assert told == ["pods/binding"], (name, writes)
