"""Faults of a node and of its control plane, in turn and together, while pods start there.

A fault begins (`strike`), and ends (`recover`). The kubelet restarts agents and schedulers itself.
"""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from cluster import waiting
from cluster.whole import WholeCluster

#: The kubelet restarts a container at once, how often it may have ended.
RESTARTS = {
    "featureGates": {"KubeletCrashLoopBackOffMax": True},
    "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
}

_SYSTEM = "/api/v1/namespaces/hami-system/pods"
_LEASE = "/apis/coordination.k8s.io/v1/namespaces/hami-system/leases/hami-scheduler"


def _nothing(cluster: WholeCluster) -> None:
    """It comes back by itself."""


@dataclass(frozen=True)
class Fault:
    """One fault; it can strike again after it has recovered."""

    name: str
    strike: Callable[[WholeCluster], None]
    recover: Callable[[WholeCluster], None] = _nothing


def _kill_agent(cluster: WholeCluster) -> None:
    kill_pods(cluster, lambda name: name.startswith("hami-node-"))


def _kill_scheduler(cluster: WholeCluster) -> None:
    """The leader, with its extender."""
    holder = cluster.api.get(_LEASE)["spec"]["holderIdentity"].partition("_")[0]
    kill_pods(cluster, lambda name: name == holder)


KUBELET = Fault(
    "kubelet",
    lambda cluster: cluster.node.kubelet.kill(),
    lambda cluster: cluster.node.kubelet.start(),
)
AGENT = Fault("agent", _kill_agent)
SCHEDULER = Fault("scheduler", _kill_scheduler)
API_SERVER = Fault(
    "apiserver",
    lambda cluster: cluster.control_plane.apiserver.kill(),
    lambda cluster: cluster.control_plane.apiserver.start(),
)


def kill_pods(cluster: WholeCluster, chosen: Callable[[str], bool]) -> None:
    """SIGKILL to all containers of those pods of hami-system.

    One that was killed before may not run again yet: that is waited for. So the API server and the
    kubelet have to run.
    """

    def processes() -> list[int]:
        pods = [pod["metadata"] for pod in cluster.api.list(_SYSTEM)]
        uids = [pod["uid"] for pod in pods if chosen(pod["name"])]
        return [process for uid in uids for process in cluster.processes(uid)]

    for process in waiting.until(processes, "such a pod runs"):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
