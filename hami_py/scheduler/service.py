"""The extender as a service: watches, allocator, background threads and listeners."""

from __future__ import annotations

import gc
import logging
import socket
import threading
import time

from starlette.routing import Router

from hami_py._native import Allocator
from hami_py.cluster.budgets import BUDGETS, Budget
from hami_py.cluster.requeue import Requeuer, storage_class_touch
from hami_py.cluster.state import NODES, PODS, QUOTAS, Cluster
from hami_py.kube import ApiServer, Followed, Reflector
from hami_py.model.pods import objects
from hami_py.scheduler.binding.lease import Lease
from hami_py.scheduler.metrics import Metrics
from hami_py.scheduler.routes import probe_routes, verb_routes
from hami_py.scheduler.settings import SchedulerSettings
from hami_py.scheduler.verbs import Verbs
from hami_py.serving import Server

_log = logging.getLogger(__name__)


class Scheduler:
    """One replica of the extender.

    It follows the cluster whether or not its kube-scheduler is the leader.
    """

    def __init__(self, api: ApiServer, settings: SchedulerSettings) -> None:
        touch = storage_class_touch(api, settings.requeue) if settings.requeue else None
        self._requeuer = Requeuer(touch)
        self.cluster = Cluster(Allocator(), settings.pods, self._requeuer)
        selector = {"labelSelector": settings.pod_selector} if settings.pod_selector else {}
        lease = _lease(api, settings, settings.lease) if settings.lease else None
        self.verbs = Verbs(self.cluster, api, settings.timing, followed=selector, lease=lease)
        self._reflectors: tuple[Reflector, ...] = (  # type: ignore[type-arg]
            Reflector(Followed(api, NODES, objects.Node, self.cluster.nodes)),
            Reflector(Followed(api, PODS, objects.Pod, self.cluster.pods, selector)),
            Reflector(Followed(api, QUOTAS, objects.ResourceQuota, self.cluster.quotas)),
            Reflector(Followed(api, BUDGETS, Budget, self.cluster.budgets)),
        )
        kinds = ("nodes", "pods", "resourcequotas", "poddisruptionbudgets")
        watches = dict(zip(kinds, self._reflectors, strict=True))
        self.metrics = Metrics(self.cluster, watches)
        pages = (self.metrics.exposition, self.metrics.cards, self.metrics.hami)
        probes = probe_routes(self.ended_threads, self.is_ready, *pages)
        verbs = verb_routes(self.verbs, self.metrics)
        self.server = Server(Router([*verbs, *probes]), settings.listen)
        self._probes = Server(Router(probes), settings.probes) if settings.probes else None
        self._expire_s = settings.expire_s
        self._stopping = threading.Event()
        self._expirer = threading.Thread(target=self._expire, name="expire", daemon=True)
        self._lister = threading.Thread(target=self._list, name="listing", daemon=True)

    def ended_threads(self) -> list[str]:
        """The names of threads that have ended by a fault; only a restart can replace them.

        An API server that does not answer ends none of them. A restart would then lose the state.
        """
        watching = [reflector.thread for reflector in self._reflectors]
        own = [self._expirer, self._lister, self._requeuer.thread, self.server.thread]
        if self._stopping.is_set():
            return []
        return [t.name for t in [*watching, *own] if t.ident is not None and not t.is_alive()]

    def is_ready(self) -> bool:
        """Whether nodes, pods and quotas were each listed once."""
        return self.cluster.is_known

    def wait_until_ready(self, deadline_s: float) -> bool:
        """Waits until the disruption budgets were listed, too; returns whether that was in time."""
        give_up = time.monotonic() + deadline_s
        return all(
            reflector.listed.wait(max(0.0, give_up - time.monotonic()))
            for reflector in self._reflectors
        )

    def start(self) -> None:
        """Starts to follow the cluster and to answer."""
        for reflector in self._reflectors:
            reflector.start()
        self._expirer.start()
        self._lister.start()
        self._requeuer.start()
        self.server.start()
        if self._probes is not None:
            self._probes.start()

    def stop(self) -> None:
        """Answers the requests that have arrived, and ends."""
        self._stopping.set()
        self.server.stop()
        if self._probes is not None:
            self._probes.stop()
        for reflector in self._reflectors:
            reflector.stop()
        self._requeuer.stop()
        for thread in (self._expirer, self._lister):
            if thread.is_alive():
                thread.join(5)

    def _expire(self) -> None:
        is_frozen = False
        while not self._stopping.wait(self._expire_s):
            if not is_frozen and self.is_ready():
                _freeze()
                is_frozen = True
            try:
                self.verbs.holds.expire()
                self.verbs.binder.check_unreported()
            except Exception:
                # The next round may succeed. If the thread ended, holds would never end.
                _log.exception("holds and bindings")

    def _list(self) -> None:
        # A thread of its own, because a page may take long and holds must end meanwhile.
        while not self._stopping.wait(self._expire_s):
            try:
                while self.verbs.binder.continue_listing() and not self._stopping.is_set():
                    pass
            except Exception:
                _log.exception("listing bound pods")


def _freeze() -> None:
    # Nearly all objects that exist now stay. If the garbage collector traversed them again and
    # again, answers that are due at that moment would be late by some 50 ms.
    gc.collect()
    gc.freeze()


def _lease(api: ApiServer, settings: SchedulerSettings, name: tuple[str, str]) -> Lease:
    here = socket.gethostname()
    holder = settings.lease_holder or here
    # Another host's clock may differ from ours by any amount.
    wall_s = time.time if holder == here else None
    return Lease(api, name, holder=holder, wait_s=settings.timing.handover_s, wall_s=wall_s)
