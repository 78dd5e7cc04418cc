"""Faults of a node and of its control plane, in turn and together, while pods start there.

A fault begins (`strike`), and ends (`recover`). The kubelet restarts agents and schedulers itself.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import urllib3

from cluster import card_owners
from cluster.api import ApiError
from cluster.card_owners import MIB, Allocations, Container
from cluster.objects import PODS
from cluster.whole import WholeCluster

_SYSTEM = "/api/v1/namespaces/hami-system/pods"
_LEASE = "/apis/coordination.k8s.io/v1/namespaces/hami-system/leases/hami-scheduler"

#: Seconds between two looks of `Watch`.
_PERIOD = 0.3


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
    """SIGKILL to all containers of those pods of hami-system."""
    uids = [
        pod["metadata"]["uid"]
        for pod in cluster.api.list(_SYSTEM)
        if chosen(pod["metadata"]["name"])
    ]
    killed = [process for uid in uids for process in processes(cluster, uid)]
    assert killed, "no such pod runs"
    for process in killed:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def processes(cluster: WholeCluster, uid: str) -> Iterator[int]:
    """The processes of a pod's containers, as this namespace numbers them."""
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with suppress(OSError):
                cgroups = (process / "cgroup").read_text()
                # The sandbox only keeps the pod's namespaces.
                is_sandbox = (process / "comm").read_text() == "sleep\n"
                if cluster.node.cgroups[0].name in cgroups and uid in cgroups and not is_sandbox:
                    yield int(process.name)


class Watch:
    """Looks all the time whether something is allocated twice; used in `with`.

    What the node agent has allocated of a card is never more than the card, and no container ever
    holds more than was allocated to it.
    """

    def __init__(self, cluster: WholeCluster) -> None:
        self._cluster = cluster
        self._allocated: Allocations = {}
        self._ended: set[Container] = set()
        # What was seen while the API server could not say which init containers have ended.
        self._unchecked: list[Allocations] = []
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        #: How often it has looked.
        self.looks = 0

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, kind: object, *unused: object) -> None:
        self._stopping.set()
        self._thread.join()
        if kind is None:
            self.check()

    def check(self) -> None:
        """Raise what was found until now."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._stopping.wait(_PERIOD):
                self._look()
        except BaseException as error:
            self._error = error

    def _look(self) -> None:
        try:
            # A container is in the node agent's ledger before it starts.
            held = card_owners.held(self._cluster.gpu)
            allocated = card_owners.ledger(self._cluster.node)
        except (OSError, AssertionError):
            if self._cluster.node.is_running and self._cluster.gpu.server.is_running:
                raise
            return
        self._allocated |= allocated
        self._unchecked.append(allocated)
        for container, cards in held.items():
            self._check_held(container, cards)
        with suppress(ApiError, urllib3.exceptions.HTTPError):
            self._ended |= card_owners.ended(self._cluster.api.list(PODS))
            for each in self._unchecked:
                card_owners.check_sums(each, self._ended)
            self._unchecked.clear()
        self.looks += 1

    def _check_held(self, container: Container, cards: Mapping[str, int]) -> None:
        # It may have started and ended since the last look.
        allocated = self._allocated.get(container)
        if allocated is not None:
            limits = {card: amount.memory_mib * MIB for card, amount in allocated.items()}
            for card, amount in cards.items():
                assert amount <= limits.get(card, 0), (container, cards, limits)
