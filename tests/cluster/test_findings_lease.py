"""kube-scheduler's lease when kube-scheduler is told to end."""

import socket
import uuid

from cluster import waiting
from cluster.api import Api, ApiError, Object
from cluster.conftest import StartControlPlane

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/findings"
ELECTION = {"leaderElect": True, "resourceName": "findings", "resourceNamespace": "kube-system"}


def lease(api: Api) -> Object:
    """Its spec; empty: there is none yet."""
    try:
        spec: Object = api.get(LEASE)["spec"]
    except ApiError:
        return {}
    return spec


def renewed(api: Api) -> Object | None:
    """The lease once it is held and was renewed: the next renewal is seconds away then.

    One that is on its way when kube-scheduler is told to end may keep the lease from being given
    back.
    """
    spec = lease(api)
    return spec if spec.get("holderIdentity") and spec["renewTime"] > spec["acquireTime"] else None


def test_a_lease_is_released_at_the_end(control_plane: StartControlPlane) -> None:
    """The next holder waits for nothing then: neither for leaseDuration nor for renewDeadline."""
    cluster = control_plane(scheduler={"leaderElection": ELECTION})
    held = waiting.until(lambda: renewed(cluster.api), "it leads, and has renewed once")
    # An extender in the same pod knows by that whose it is.
    host, _, its_own = held["holderIdentity"].rpartition("_")
    assert host == socket.gethostname()
    uuid.UUID(its_own)
    cluster.scheduler.stop()
    given_back = lease(cluster.api)
    assert given_back["holderIdentity"] == ""
    assert given_back["leaseDurationSeconds"] == 1
    # The time and the number of transitions show the next holder.
    cluster.scheduler.start()
    taken = waiting.until(lambda: renewed(cluster.api), "it leads again")
    assert taken["leaseTransitions"] == held["leaseTransitions"] + 1
    assert taken["acquireTime"] > given_back["acquireTime"] >= held["acquireTime"]
