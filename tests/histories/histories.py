"""Random histories: two replicas, their kube-schedulers, a fake API server and all possible faults.

One seeded generator drives them step by step.

**The lease.** In most histories replicas read kube-scheduler's lease, and it changes hands in all
possible ways (``election``): also at once, while a binding of the previous holder is in progress,
and with two holders that make calls at a time. In the other histories they know of no lease. There,
kube-scheduler gives up 10 s after its last renewal (renewDeadline) and no other takes over before
15 s (leaseDuration). So there are at least 5 s between the last call of one and the first of the
next. Earlier writes of the first one's extender may still take effect.

At its end a history becomes quiescent: no more faults occur. Within minutes of its clock all pods
that fit must be bound, and nothing may be left of deleted pods.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection
from itertools import accumulate

from histories import quiescence
from histories.election import Loss
from histories.faults import Fate
from histories.replica import Watch
from histories.scene import Did, Scene
from histories.world import NODES as NAMES

STEPS = 70

GAP_S = (5.0, 15.0)
"""From the last call of a kube-scheduler that loses its lease to the first of the next, where
replicas know of none."""


START_S = 60.0
"""How long the first replica has been leader when a history begins."""

NOTED_S = (0.0, 0.0, 0.5, 8.0)
"""kube-scheduler notes the time at which it takes the lease so long before it is done."""


class History(Scene):
    """One history.

    Args:
        seed: of the generator: the same seed is the same history.
        steps: before it becomes quiescence.
        without: kinds of steps that are left out.
    """

    def __init__(self, seed: int, steps: int = STEPS, without: Collection[str] = ()) -> None:
        super().__init__(seed)
        self._steps = steps
        self.kinds = [name for name, *_ in self._all()]
        self._fault_rate = self.chance.choice((0.0, 0.1, 0.3))
        self._meanwhile_rate = self.chance.choice((0.0, 0.3, 0.6))
        # The next write of a binding is the last thing before the lease is lost.
        self._is_laid = self._springs = False
        self._share_of_b = self.chance.choice((0.1, 0.5, 0.5, 0.9))
        allowed = [kind for kind in self._all() if kind[0] not in without]
        self._acts = [(name, act) for name, _, act in allowed]
        self._weights = list(accumulate(weight for _, weight, _ in allowed))

    def run(self) -> Counter[str]:
        """Runs it to its end; says what happened, and how often.

        Raises:
            Broken: an invariant does not hold.
        """
        for name in NAMES:
            self.world.node_comes(name)
        if self.chance.random() < 0.3:
            for _ in range(3):
                self.world.quota_changes()
        quiescence.quiesce(self)
        self.lead(0, late_s=START_S)
        self.is_calm = False
        for _ in range(self._steps):
            self._step()
        quiescence.everybody_is_bound(self)
        quiescence.what_is_no_event(self)
        quiescence.nothing_is_left(self)
        return self.oracle.seen

    def _all(self) -> list[tuple[str, int, Callable[[], Did]]]:
        world = self.world
        return [
            ("pod comes", 12, world.pod_comes),
            ("pod goes", 4, world.pod_goes),
            ("pod starts", 8, world.pod_starts),
            ("pod starts anew", 4, world.pod_restarts),
            ("pod ends", 3, world.pod_ends),
            ("kubelet is done", 4, world.kubelet_is_done),
            ("node comes", 2, world.node_comes),
            ("node changes", 2, world.node_changes),
            ("node goes", 1, world.node_goes),
            ("quota changes", 2, world.quota_changes),
            ("schedule", 20, self._schedule),
            ("bind", 16, self.bind),
            ("informers", 12, self._inform),
            ("watch", 25, self._watch),
            ("watch ends", 3, self._end_a_watch),
            ("versions", 2, self._forget),
            ("time passes", 8, self._wait),
            ("second", 4, self.tick),
            ("waker", 6, self._wake),
            ("leader changes", 2, self._change_leader),
            ("lease is handed over", 2, self._hand_over),
            ("lease is lost while binding", 2, self._lose_while_binding),
            ("replica restarts", 2, self._restart),
        ]

    def _step(self) -> None:
        ((name, act),) = self.chance.choices(self._acts, cum_weights=self._weights)
        self.tell(name, act())

    def fate(self, method: str) -> Fate:
        if method == "POST" and self._is_laid and not self.is_calm and self.scheduler is not None:
            self._is_laid, self._springs = False, True
            fate = self.chance.choice((Fate.DONE, Fate.UNANSWERED, Fate.LATE, Fate.LATE))
            self.tell(method, fate.name.lower())
            return fate
        # There are many reads to one binding.
        rate = self._fault_rate * (2 if method == "POST" else 1)
        if self.is_calm or self.chance.random() >= rate:
            return Fate.DONE
        fates = {
            "WATCH": (Fate.BUSY,),
            "GET": (Fate.BUSY, Fate.LOST),
            "POST": (Fate.BUSY, Fate.LOST, Fate.UNANSWERED, Fate.LATE),
            "PATCH": (Fate.BUSY, Fate.LOST, Fate.UNANSWERED, Fate.LATE),
        }
        fate = self.chance.choice(fates[method])
        self.tell(method, fate.name.lower())
        return fate

    def meanwhile(self) -> None:
        if self._springs:
            self._springs = False
            self.depth += 1
            self.tell("lease", self._hand_over())
            self.depth -= 1
            return
        if self.is_calm or self.depth == 2:
            return
        if self.chance.random() < self._meanwhile_rate:
            self.depth += 1
            before = self.api.version
            for _ in range(self.chance.randint(1, 4)):
                self._step()
            self.depth -= 1
            if self.api.version != before:
                self.happened("written meanwhile")

    def _schedule(self) -> Did:
        scheduler = self.asker()
        if scheduler is None:
            return None
        if self.chance.random() < 0.7:
            scheduler.look()
        return scheduler.schedule_one()

    def _inform(self) -> Did:
        if scheduler := self.asker():
            scheduler.look(self.chance.choice((1, 3, None)))
        return None

    def _some_watch(self) -> tuple[str, Watch]:
        # One of them may be told of everything late.
        replica = self.replicas[self.chance.random() < self._share_of_b]
        watch = self.chance.choice((replica.nodes, replica.pods, replica.pods, replica.quotas))
        return replica.name, watch

    def _watch(self) -> Did:
        name, watch = self._some_watch()
        before = watch.told
        watch.step(self.chance)
        return f"{name} {watch.follower._path} {watch.told}" if watch.told != before else None

    def _end_a_watch(self) -> Did:
        name, watch = self._some_watch()
        if watch.stream is None:
            return None
        watch.stream.end()
        return f"{name} {watch.follower._path}"

    def _forget(self) -> Did:
        self.api.forget()
        return f"up to {self.api.version} are forgotten"

    def _wake(self) -> Did:
        return self.chance.choice(self.replicas).wake()

    def _wait(self) -> Did:
        seconds = self.chance.choice((0.1, 0.1, 1.0, 1.0, 3.0, 12.0))
        self.clock.advance(self.clock.now + seconds)
        return f"{seconds} s"

    def _change_leader(self) -> Did:
        lost = self._lose_lease(self.chance.randrange(2))
        return lost and f"{lost.how}, nobody leads for {lost.after:.1f} s"

    def _hand_over(self) -> Did:
        """To the other one, and that one begins at once."""
        if self.scheduler is None:
            return None
        lost = self._lose_lease(1 - "ab".index(self.scheduler.extender.name), quick=True)
        assert lost is not None
        self.tell("lease", f"{lost.how}, nobody leads for {lost.after:.1f} s")
        self.clock.advance(self.clock.now + lost.after)
        # It is refused at first, and tries again until it is not, or shortly before.
        for seconds in (0.0, self.chance.choice((1.0, 2.0, 4.0, 4.0)), 0.1, 0.3):
            self.clock.advance(self.clock.now + seconds)
            for _ in range(3):
                if self.scheduler is not None:
                    self.scheduler.look()
                self.tell("schedule", self._schedule())
                self.tell("bind", self.bind())
        return "done"

    def _lose_while_binding(self) -> Did:
        """The binding is under way when the next one begins."""
        if self.scheduler is None or self._is_laid:
            return None
        # Others wait, which may be given the same cards.
        for _ in range(2):
            self.tell("pod comes", self.world.pod_comes())
        self.scheduler.look()
        self.tell("schedule", self.scheduler.schedule_one())
        # If not this one, then the next.
        self._is_laid = True
        return self.bind()

    def _lose_lease(self, next_one: int, *, quick: bool = False) -> Loss | None:
        old = self.scheduler
        if old is None:
            return None
        old.is_leading = False
        self.scheduler = None
        now = self.clock.now
        if self.election is None:
            gap = GAP_S[0] if quick else self.chance.uniform(*GAP_S)
            lost = Loss("it is lost", gap, 0.0, 0.0)
            old.has_ended = True
        else:
            lost = self.election.lose()
            self.former.append(old)
            old.is_still = lost.still_s > 0
            self.clock.at(now + lost.still_s, lambda: setattr(old, "is_still", False))
            self.clock.at(now + lost.ends_s, lambda: self.ends(old))
        late_s = self.chance.choice(NOTED_S)
        self.clock.at(now + lost.after, lambda: self.lead(next_one, late_s))
        return lost

    def _restart(self) -> Did:
        return self.restart(self.chance.randrange(2))


def shrunk(seed: int) -> str:
    """The steps of a history that fails, without the kinds of steps that it fails without, too."""
    left_out: set[str] = set()
    history, error = _fails(seed, left_out)
    for kind in history.kinds:
        without = left_out | {kind}
        shorter, why = _fails(seed, without)
        if why and len(shorter.told) <= len(history.told):
            history, error, left_out = shorter, why, without
    return "\n".join([f"seed {seed}:", *history.told, error])


def _fails(seed: int, without: Collection[str]) -> tuple[History, str]:
    """The history, and why it is broken: in this, seeds without a kind are other histories."""
    history = History(seed, without=without)
    try:
        history.run()
    except Exception as error:
        return history, f"broken: {error!r}"
    return history, ""


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        history, error = _fails(int(argument), ())
        print("\n".join([f"seed {argument}:", *history.told, error or "it holds"]))
