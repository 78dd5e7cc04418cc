"""What a history has: the API server, its clock, two replicas, and whichever of them is asked."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod

from histories.fake_api import FakeApi
from histories.faults import Client, Clock, Do, Fate
from histories.kube_scheduler import KubeScheduler
from histories.oracle import Belief, Oracle
from histories.preemption import Victims
from histories.refusals import Object
from histories.replica import CLASSES, WAKE, Replica
from histories.world import World

RESTART_S = (1.0, 4.0)

Did = str | None
"""What was done, in words; ``None``: there was nothing to do."""


class Scene(ABC):
    """All of it, and what it takes to keep it going.

    Attributes:
        told: all that was done so far.
        is_calm: nothing fails, and nothing happens meanwhile.
        scheduler: the kube-scheduler that has the lease; ``None``: nobody has it.
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
        self._beliefs: list[Belief] = []
        self.replicas = [self.replica(name) for name in "ab"]

    @abstractmethod
    def fate(self, method: str) -> Fate:
        """What becomes of a request of a replica's."""

    @abstractmethod
    def meanwhile(self) -> None:
        """What happens while one is under way."""

    def tell(self, name: str, did: Did) -> None:
        """For whoever reads a history that failed."""
        if did is not None:
            self.told.append(f"{self.clock.now:9.2f} {'  ' * self.depth}{name}: {did}")

    def happened(self, fault: str) -> None:
        """A fault has reached somebody; those at the end of all histories do not count."""
        if not self.is_calm:
            self.oracle.seen[fault] += 1

    def replica(self, name: str) -> Replica:
        """A new one, which knows nothing."""

        def send(do: Do) -> Do:
            """The same, in the name of whoever binds now."""
            belief = self._beliefs[-1] if self._beliefs else None

            def done() -> tuple[int, bytes]:
                self.oracle.belief = belief
                try:
                    return do()
                finally:
                    self.oracle.belief = None

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
        return Replica(name, client, self.clock)

    def lead(self, which: int) -> None:
        """The kube-scheduler of a replica has the lease."""

        def check(pod: Object, proposed: Victims, answered: Victims) -> None:
            knows_all = scheduler.extender.knows_all(self.api.version)
            self.oracle.check_victims(pod, proposed, answered, knows_all=knows_all)

        replica = self.replicas[which]
        scheduler = KubeScheduler(
            self.api, self.clock, self.chance, replica, check=check, keeps=self.oracle.keeps
        )
        self.scheduler = scheduler
        self.tell("lease", f"{self.replicas[which].name} leads")

    def bind(self) -> Did:
        """One binding is asked for."""
        scheduler = self.scheduler
        if scheduler is None:
            return None
        replica = scheduler.extender
        self._beliefs.append(Belief(replica.name, replica.nodes.told, replica.quotas.told))
        try:
            did = scheduler.bind_one()
        finally:
            self._beliefs.pop()
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
            if self.scheduler and self.scheduler.extender is old:
                self.scheduler.extender = fresh
            self.tell("replica", f"{old.name} is back")

        after = self.chance.uniform(*RESTART_S)
        self.clock.at(self.clock.now + after, come_back)
        return old.name

    def tick(self) -> Did:
        """A second has passed for the replicas."""
        for replica in self.replicas:
            replica.tick()
        return None
