"""Replicas beside kube-schedulers that have a lease, over one API server."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from hami_py.kube.errors import NotFound
from hami_py.scheduler.binding.lease import Lease
from hami_py.scheduler.settings import Timing
from hami_py.scheduler.verbs import Verbs
from unit.scheduler.small import SECOND, Server, Small

ASSIGNMENT = "hami.io/assignment"
TAKEN_AT_S = 1_800_000_000.0
LASTS_S = 15


class Leases(Server):
    """An API server with kube-scheduler's lease, too; ``looking`` is called before each look."""

    def __init__(self) -> None:
        super().__init__()
        self.taken_s: float | None = TAKEN_AT_S
        self.transitions = 1
        self.holder = "one_c0ffee"
        self.is_renewed = True
        self.more: dict[str, Any] = {}
        self.looking: Callable[[], None] = lambda: None
        self._renewals = 0

    def get(self, path: str, query: Any = None, *, deadline_s: float) -> bytes:
        if "/leases/" not in path:
            return super().get(path, query, deadline_s=deadline_s)
        assert path == "/apis/coordination.k8s.io/v1/namespaces/hami-system/leases/hami-scheduler"
        self.looking()
        if self.taken_s is None:
            raise NotFound(f"GET {path}", "404: not found", "forget it", 404)
        self._renewals += self.is_renewed
        spec = {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": LASTS_S,
            "acquireTime": time(self.taken_s),
            # It is compared with no clock: hosts' clocks differ.
            "renewTime": time(1_000_000 + self._renewals),
            "leaseTransitions": self.transitions,
            **self.more,
        }
        return json.dumps({"metadata": {"name": "hami-scheduler"}, "spec": spec}).encode()

    def take(self, replica: str, at_s: float) -> None:
        """The kube-scheduler of a replica takes it, by the replicas' clock."""
        self.holder, self.taken_s = f"{replica}_c0ffee", TAKEN_AT_S + at_s
        self.transitions += 1


def time(seconds: float) -> str:
    """As Kubernetes writes it (MicroTime)."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()


class Replica(Small):
    """One of two over one API server; time of day and of its clock go on alike."""

    def __init__(self, server: Leases, host: str = "one") -> None:
        super().__init__(["a"])
        self.server = server
        self.skew_s = 0.0
        self.lease = Lease(
            server,  # type: ignore[arg-type]
            ("hami-system", "hami-scheduler"),
            holder=host,
            wait_s=Timing().handover_s,
            clock_ns=lambda: int(self.now_s * SECOND),
            wall_s=lambda: TAKEN_AT_S + self.now_s + self.skew_s,
        )
        self.verbs = Verbs(
            self.cluster,
            server,  # type: ignore[arg-type]
            Timing(),
            lambda: int(self.now_s * SECOND),
            lease=self.lease,
        )
        self.listed()


def leader(server: Leases, *names: str) -> Replica:
    """One that has had the lease for long enough to bind, and pods that wait."""
    replica = Replica(server)
    replica.now_s = 100.0
    for name in names:
        replica.create(name, 1_000)
    return replica


def given(server: Server) -> int:
    """MiB on all cards, by the annotations of what is bound."""
    bound = [pod for pod in server.pods.values() if pod["spec"].get("nodeName")]
    written = [json.loads(pod["metadata"]["annotations"][ASSIGNMENT]) for pod in bound]
    containers = [grants for one in written for grants in one["containers"].values()]
    return sum(grant["memory_mib"] for grants in containers for grant in grants)
