"""One replica of the extender, as it is made for production, but for its threads."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping
from typing import Any

from hami_py._native import Allocator
from hami_py.cluster.requeue import Requeuer, storage_class_touch
from hami_py.cluster.state import NODES, PODS, QUOTAS, Cluster
from hami_py.kube.errors import KubeError
from hami_py.kube.followed import Followed
from hami_py.kube.follower import Follower
from hami_py.model import pods
from hami_py.model.pods import objects
from hami_py.scheduler.binding.lease import Lease
from hami_py.scheduler.settings import Timing
from hami_py.scheduler.verbs import Verbs
from histories import election
from histories.election import Election
from histories.faults import Client, Clock, FakeStream, Killed
from histories.reading import LABEL

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
WAKE = "hami-wake"

_PAGE = 2
"""Objects per page, so that lists have several."""


class Watch:
    """A follower, step by step."""

    def __init__(self, clock: Clock, follower: Follower[Any]) -> None:
        self.follower = follower
        self.stream: FakeStream | None = None
        self.resume_at = 0.0
        self._clock = clock
        self._pages: Iterator[None] | None = None
        self._is_busy = False

    @property
    def told(self) -> int:
        """The version up to which it knows all that has happened."""
        if self.stream is not None:
            return self.stream.at
        return int(self.follower.version or 0)

    def catch_up(self, version: int) -> None:
        """Steps until it has been told of that version, or has to pause."""
        while self.resume_at <= self._clock.now:
            if self.stream is not None and not self.stream.over and self.stream.at >= version:
                return
            self.step()

    def step(self, chance: random.Random | None = None) -> None:
        """One thing: a page of a list, the opening of a watch, or some of its events."""
        if self._is_busy or self._clock.now < self.resume_at:
            return
        self._is_busy = True
        try:
            self._step(chance)
        except KubeError as error:
            self.stream = self._pages = None
            self.resume_at = self._clock.now + self.follower.failed(error)
        except Killed:
            pass
        finally:
            self._is_busy = False

    def _step(self, chance: random.Random | None) -> None:
        if self.stream is not None:
            self._read(self.stream, chance)
        elif self.follower.version is None:
            self._pages = self._pages or self.follower.pages()
            if next(self._pages, self) is self:
                self._pages = None
        else:
            self.stream = self.follower.watch()  # type: ignore[assignment]

    def _read(self, stream: FakeStream, chance: random.Random | None) -> None:
        if chance is None:
            lines = stream.ready()
        else:
            lines = stream.ready(chance.choice((1, 2, 5, None)), bookmark=chance.random() < 0.2)
            if lines and chance.random() < 0.15:
                lines = stream.repeat(lines)
        for line in lines:
            self.follower.take(line)
        if stream.over:
            self.stream = None
            self.resume_at = self._clock.now + self.follower.ended()


class LeaseReader:
    """A client, for the lease alone.

    Attributes:
        is_busy: a look at it is under way. Threads that bind wait for it, and have its answer, too.
    """

    def __init__(self, client: Client) -> None:
        self.is_busy = False
        self._client = client

    def get(self, path: str, query: Mapping[str, str] | None = None, *, deadline_s: float) -> bytes:
        self.is_busy = True
        try:
            return self._client.get(path, query, deadline_s=deadline_s)
        finally:
            self.is_busy = False


class Replica:
    """The allocator, the state that feeds it, and the verbs.

    Args:
        name: of the replica, and of its host.
        client: its connection to the API server.
        clock: the clock for its waits.
        lease: that of the kube-scheduler beside it; ``None``: it knows of none.

    Attributes:
        name: of the replica.
        client: its connection to the API server.
        cluster: the cluster as it knows it.
        verbs: its verbs.
        watches: of nodes, pods and quotas.
        is_dead: whether the program has ended.
        wakes_at: when it may next have pods retried.
    """

    def __init__(
        self, name: str, client: Client, clock: Clock, lease: Election | None = None
    ) -> None:
        self.name = name
        self.client = client
        self._lease_reader = LeaseReader(client)
        self._requeuer = Requeuer(storage_class_touch(client, WAKE))  # type: ignore[arg-type]
        self.cluster = Cluster(Allocator(), pods.PodSettings(), self._requeuer)
        guard = self._lease(lease, clock) if lease is not None else None
        selector = {"labelSelector": "=".join(*LABEL.items())}
        self.verbs = Verbs(self.cluster, client, Timing(), clock.ns, selector, lease=guard)  # type: ignore[arg-type]
        self._clock = clock

        def watch(path: str, kind: type, sink: Any, query: dict[str, str] | None = None) -> Watch:
            followed = Followed(client, path, kind, sink, query or {})  # type: ignore[arg-type]
            return Watch(clock, Follower(followed, page=_PAGE, clock=lambda: clock.now))

        self.nodes = watch(NODES, objects.Node, self.cluster.nodes)
        self.pods = watch(PODS, objects.Pod, self.cluster.pods, selector)
        self.quotas = watch(QUOTAS, objects.ResourceQuota, self.cluster.quotas)
        self.watches = (self.nodes, self.pods, self.quotas)
        self.is_dead = False
        self.wakes_at = 0.0
        self._is_waking = False

    def _lease(self, lease: Election, clock: Clock) -> Lease:
        """As ``service`` makes it in one pod with kube-scheduler."""
        return Lease(
            self._lease_reader,  # type: ignore[arg-type]
            election.PLACE,
            holder=self.name,
            wait_s=Timing().handover_s,
            clock_ns=clock.ns,
            wall_s=lambda: lease.wall_s(self.name),
        )

    @property
    def is_reading_lease(self) -> bool:
        """A binding asked for now would wait for that."""
        return self._lease_reader.is_busy

    def knows_all(self, version: int) -> bool:
        """Whether it has been told of everything up to a version."""
        return all(watch.told >= version for watch in self.watches)

    def die(self) -> None:
        """Of what it has under way some is done all the same."""
        self.is_dead = True
        self.client.kill()

    def tick(self) -> None:
        """The periodic work of the service, every second."""
        if not self.is_dead:
            # There are no budgets, and no pod is evicted before that is known.
            self.cluster.budgets.replace([])
            self.verbs.holds.expire()
            with contextlib.suppress(Killed):
                self.verbs.binder.check_unreported()
                self.verbs.binder.continue_listing()

    def wake(self) -> str | None:
        """The work of its requeuer, while that is not pausing."""
        if self.is_dead or self._is_waking or self._clock.now < self.wakes_at:
            return None
        self._is_waking = True
        pause_s = 0.0
        with contextlib.suppress(Killed):
            pause_s = self._requeuer.requeue()
        self._is_waking = False
        self.wakes_at = self._clock.now + pause_s
        return f"{self.name} wakes" if pause_s else None
