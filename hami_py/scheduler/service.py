"""The extender as one thing that runs: the watches, the allocator, two listeners."""

from __future__ import annotations

import gc
import logging
import socket
import threading
import time
from dataclasses import dataclass, field

from starlette.routing import Router

from hami_py._native import Allocator
from hami_py.kube import ApiServer, Followed, Reflector
from hami_py.model import pods
from hami_py.model.pods import objects
from hami_py.scheduler.app import make_app, probes
from hami_py.scheduler.budgets import BUDGETS, Budget
from hami_py.scheduler.cluster import NODES, PODS, QUOTAS, Cluster
from hami_py.scheduler.lease import Lease
from hami_py.scheduler.metrics import Meter
from hami_py.scheduler.timing import Timing
from hami_py.scheduler.verbs import Verbs
from hami_py.scheduler.waking import Waker, touching
from hami_py.serving import Listen, Server

__all__ = ["Scheduler", "SchedulerSettings"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SchedulerSettings:
    """How the extender runs.

    Attributes:
        listen: where kube-scheduler asks; loopback, because it runs beside us in one pod.
        probes: where health and metrics are read beside ``listen``; ``None``: there alone.
        pods: how pods are read.
        timing: how long things are waited for, and kept.
        pod_selector: the pods that are followed; the webhook labels them. Empty follows all.
        lease: namespace and name of the lease under which kube-scheduler works; None where there is
            one replica alone.
        lease_holder: the name of the host that our kube-scheduler runs on: whose lease it is. None:
            this one, as in one pod.
        wake: the StorageClass that is touched to have pods tried again; empty: none.
        expire_s: how often holds, and bindings that were not answered, are looked through for those
            whose time is over.
    """

    listen: Listen = field(default_factory=lambda: Listen("127.0.0.1", 9380))
    probes: Listen | None = None
    pods: pods.PodSettings = field(default_factory=pods.PodSettings)
    timing: Timing = field(default_factory=Timing)
    pod_selector: str = "hami.io/pod=true"
    lease: tuple[str, str] | None = None
    lease_holder: str | None = None
    wake: str = "hami-wake"
    expire_s: float = 1.0


class Scheduler:
    """One replica. It follows the cluster whether or not its kube-scheduler has the lease.

    Attributes:
        cluster: the cluster as it is known.
        verbs: who answers.
        server: who listens.
    """

    def __init__(self, api: ApiServer, settings: SchedulerSettings) -> None:
        self._waker = Waker(touching(api, settings.wake) if settings.wake else None)
        self.cluster = Cluster(Allocator(), settings.pods, self._waker)
        selector = {"labelSelector": settings.pod_selector} if settings.pod_selector else {}
        timing = settings.timing
        lease = _lease(api, settings, settings.lease) if settings.lease else None
        self.verbs = Verbs(self.cluster, api, timing, followed=selector, lease=lease)
        self._reflectors: tuple[Reflector, ...] = (  # type: ignore[type-arg]
            Reflector(Followed(api, NODES, objects.Node, self.cluster.nodes)),
            Reflector(Followed(api, PODS, objects.Pod, self.cluster.pods, selector)),
            Reflector(Followed(api, QUOTAS, objects.ResourceQuota, self.cluster.quotas)),
            Reflector(Followed(api, BUDGETS, Budget, self.cluster.budgets)),
        )
        kinds = ("nodes", "pods", "resourcequotas", "poddisruptionbudgets")
        self.meter = Meter(self.cluster, dict(zip(kinds, self._reflectors, strict=True)))
        pages = probes(self.crashed, self.is_ready, self.meter.exposition, self.meter.cards)
        asked = make_app(self.verbs, self.meter)
        self.server = Server(Router([*asked, *pages]), settings.listen)
        self._probes = Server(Router(pages), settings.probes) if settings.probes else None
        self._expire_s = settings.expire_s
        self._stopping = threading.Event()
        self._caretaker = threading.Thread(target=self._look_after, name="promises", daemon=True)
        self._looker = threading.Thread(target=self._go_on, name="takeover", daemon=True)

    def crashed(self) -> list[str]:
        """Threads of ours that have ended though they should not: only a restart brings them back.

        An API server that is away ends none, and a restart would lose what is held.
        """
        ours = [reflector.thread for reflector in self._reflectors]
        own = [self._caretaker, self._looker, self._waker.thread, self.server.thread]
        if self._stopping.is_set():
            return []
        return [t.name for t in [*ours, *own] if t.ident is not None and not t.is_alive()]

    def is_ready(self) -> bool:
        """Whether the whole cluster has been read once, but for disruption budgets."""
        return self.cluster.is_known

    def wait_until_ready(self, deadline_s: float) -> bool:
        """Waits for that, and for the budgets; whether all of it came in time."""
        give_up = time.monotonic() + deadline_s
        return all(
            reflector.listed.wait(max(0.0, give_up - time.monotonic()))
            for reflector in self._reflectors
        )

    def start(self) -> None:
        """Begins to follow the cluster and to answer."""
        for reflector in self._reflectors:
            reflector.start()
        self._caretaker.start()
        self._looker.start()
        self._waker.start()
        self.server.start()
        if self._probes is not None:
            self._probes.start()

    def stop(self) -> None:
        """Answers what has come, and ends."""
        self._stopping.set()
        self.server.stop()
        if self._probes is not None:
            self._probes.stop()
        for reflector in self._reflectors:
            reflector.stop()
        self._waker.stop()
        for thread in (self._caretaker, self._looker):
            if thread.is_alive():
                thread.join(5)

    def _look_after(self) -> None:
        is_frozen = False
        while not self._stopping.wait(self._expire_s):
            if not is_frozen and self.is_ready():
                _freeze()
                is_frozen = True
            try:
                self.cluster.settle(time.monotonic_ns())
                self.verbs.holds.settle()
                self.verbs.binder.settle()
            except Exception:
                # The next round may do better; without one, promises would never end.
                _log.exception("promises")

    def _go_on(self) -> None:
        # A page may take long: promises must not wait for it.
        while not self._stopping.wait(self._expire_s):
            try:
                while self.verbs.binder.go_on() and not self._stopping.is_set():
                    pass
            except Exception:
                _log.exception("takeover")


def _freeze() -> None:
    # Nearly all that is known now stays. Were it looked through for cycles again and again, every
    # answer that is due just then would come some 50 ms late.
    gc.collect()
    gc.freeze()


def _lease(api: ApiServer, settings: SchedulerSettings, place: tuple[str, str]) -> Lease:
    here = socket.gethostname()
    holder = settings.lease_holder or here
    # Another host's clock may differ from ours by any time.
    wall_s = time.time if holder == here else None
    return Lease(api, place, holder=holder, wait_s=settings.timing.handover_s, wall_s=wall_s)
