"""The environment of a history: the API server, its clock, two replicas, and the active one."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import NamedTuple

from hami_py.scheduler.settings import Timing
from histories.election import Election
from histories.fake_api import FakeApi
from histories.faults import LATE_S, Client, Clock, Do, Fate
from histories.kube_scheduler import KubeScheduler
from histories.oracle import Belief, Oracle
from histories.preemption import Victims
from histories.replica import CLASSES, WAKE, Replica
from histories.status_errors import Object
from histories.world import World

RESTART_S = (1.0, 4.0)

Did = str | None
"""What was done, in words; ``None``: there was nothing to do."""


class _Bind(NamedTuple):
    """A binding that was asked for: by whom, what its replica knew then, and when that was."""

    asker: KubeScheduler
    belief: Belief
    asked_at: float


class Scene(ABC):
    """The state of a history, and the functions that advance it.

    Attributes:
        told: all steps so far.
        is_calm: no faults occur, and nothing else happens meanwhile.
        scheduler: the kube-scheduler that holds the lease; ``None``: no holder.
        former: former holders that have not noticed yet.
        election: the lease that replicas read; ``None``: they do not know of one.
    """

    def __init__(self, seed: int) -> None:
        self.told: list[str] = []
        self.clock = Clock()
        self.api = FakeApi()
        self.oracle = Oracle(self.api)
        self.chance = random.Random(seed)  # noqa: S311
        # A follower's pauses have a random part, too, of Python's own generator.
        random.seed(seed)
        self.api.request("POST", CLASSES, None, {"metadata": {"name": WAKE}})
        self.world = World(self.api, self.chance)
        self.depth = 0
        self.is_calm = True
        self.scheduler: KubeScheduler | None = None
        self.former: list[KubeScheduler] = []
        # Without a lease there are seconds between two leaders, in which no calls are made.
        has_lease = self.chance.random() < 0.75
        self.election = Election(self.clock, self.chance) if has_lease else None
        if self.election is not None:
            self.api.lease = self.election.read
        self._binds: list[_Bind] = []
        """Those that are under way, each asked for during the one before."""
        self.replicas = [self.replica(name) for name in "ab"]

    @abstractmethod
    def fate(self, method: str) -> Fate:
        """The fate of a request of a replica."""

    @abstractmethod
    def meanwhile(self) -> None:
        """Called while a request is in progress."""

    def tell(self, name: str, did: Did) -> None:
        """Add a step to the log of a failed history."""
        if did is not None:
            self.told.append(f"{self.clock.now:9.2f} {'  ' * self.depth}{name}: {did}")

    def happened(self, fault: str) -> None:
        """A fault has reached a client; faults at the end of all histories do not count."""
        if not self.is_calm:
            self.oracle.seen[fault] += 1

    def replica(self, name: str) -> Replica:
        """A new one, which knows nothing."""

        def send(do: Do) -> Do:
            """The same, for the replica that is binding now."""
            bind = self._binds[-1] if self._binds else None

            def done() -> tuple[int, bytes]:
                self.oracle.belief = bind and bind.belief
                before = self.oracle.seen["bound"]
                try:
                    return do()
                finally:
                    self.oracle.belief = None
                    if bind is not None and self.oracle.seen["bound"] > before:
                        self._bound(bind)

            return done

        client = Client(
            self.api,
            self.clock,
            fate=self.fate,
            meanwhile=self.meanwhile,
            pick=self.chance.random,
            send=send,
            happened=self.happened,
        )
        return Replica(name, client, self.clock, self.election)

    def _is_beside_the_next(self, asker: KubeScheduler) -> bool:
        """Whether one asks that is not the leader, and the leader has already begun."""
        next_one = self.scheduler
        return asker is not next_one and next_one is not None and next_one.has_asked

    def _bound(self, bind: _Bind) -> None:
        if self._is_beside_the_next(bind.asker):
            is_late = self.clock.now > bind.asked_at + Timing().bind_s
            self.happened(f"bound{' late' if is_late else ''} beside the next leader")

    def lead(self, which: int, late_s: float = 0.0) -> None:
        """The kube-scheduler of a replica has the lease.

        Args:
            which: of the replicas.
            late_s: how long before it noted the time of that.
        """
        alone_at = self.clock.now
        if self.election is not None:
            alone_at += Timing().bind_s + LATE_S
            self.election.take("ab"[which], late_s)
        for old in self.former:
            # It is a process of the same host that has ended and restarted.
            if old.extender.name == "ab"[which]:
                self.ends(old)

        def check(pod: Object, proposed: Victims, answered: Victims) -> None:
            knows_all = scheduler.extender.knows_all(self.api.version)
            self.oracle.check_victims(pod, proposed, answered, knows_all=knows_all)

        replica = self.replicas[which]
        scheduler = KubeScheduler(
            self.api,
            self.clock,
            self.chance,
            replica,
            check=check,
            keeps=self.oracle.keeps,
            alone_at=alone_at,
        )
        self.scheduler = scheduler
        self.tell("lease", f"{self.replicas[which].name} leads")

    def ends(self, former: KubeScheduler) -> None:
        """End a kube-scheduler that has lost the lease."""
        former.has_ended = True
        self.former = [one for one in self.former if one is not former]

    def asker(self) -> KubeScheduler | None:
        """A kube-scheduler that may ask something: the leader, or one that takes itself for it."""
        former = [one for one in self.former if not one.is_still]
        if former and (self.scheduler is None or self.chance.random() < 0.35):
            return self.chance.choice(former)
        return self.scheduler

    def bind(self) -> Did:
        """One binding is asked for."""
        scheduler = self.asker()
        if scheduler is None:
            return None
        replica = scheduler.extender
        belief = Belief(replica.name, replica.nodes.told, replica.quotas.told)
        is_beside = self._is_beside_the_next(scheduler)
        is_under_way = any(not bind.asker.is_leading for bind in self._binds)
        self._binds.append(_Bind(scheduler, belief, self.clock.now))
        try:
            did = scheduler.bind_one()
        finally:
            self._binds.pop()
        if did and is_beside:
            self.happened("bind asked beside the next leader")
        if did and scheduler.is_leading and is_under_way:
            self.happened("bind asked beside one of the leader before")
        return did and f"{replica.name}: {did}"

    def restart(self, which: int) -> Did:
        """A replica dies, and comes back knowing nothing."""
        old = self.replicas[which]
        if old.is_dead:
            return None
        old.die()

        def come_back() -> None:
            self.happened("restart")
            fresh = self.replicas[which] = self.replica(old.name)
            for scheduler in (self.scheduler, *self.former):
                if scheduler and scheduler.extender is old:
                    scheduler.extender = fresh
            self.tell("replica", f"{old.name} is back")

        after = self.chance.uniform(*RESTART_S)
        self.clock.at(self.clock.now + after, come_back)
        return old.name

    def tick(self) -> Did:
        """A second has passed for the replicas."""
        for replica in self.replicas:
            replica.tick()
        return None
