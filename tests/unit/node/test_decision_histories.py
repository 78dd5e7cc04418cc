"""Random histories of a node: no card is ever used beyond its size, and nothing waits forever.

A seed that fails is the whole history:

    PYTHONPATH=tests python -m unit.node.test_decision_histories 4711
"""

from __future__ import annotations

import random
import sys
from collections import Counter

from histories.reading import ContainerRequest
from unit.node.simulated_node import Broken, Pod, SimulatedNode

SEEDS = 600

STEPS = 60

HAPPENS = {
    "started": 2000,
    "started again": 1100,
    "waited": 280,
    "waited, then started": 140,
    "deleted by force": 230,
}
"""How often each has to happen in all histories: about half as often as it does."""


class History:
    """One history: the same seed is the same history."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)  # noqa: S311
        sizes = chance.choice(((8000, 8000, 8000), (8000, 8000), (8000, 8000, 4000)))
        self.node = SimulatedNode(dict(zip("ABC", sizes, strict=False)), chance)
        self.sizes = chance.choice(((8000,), (4000,), (4000, 8000), (1000, 3000, 4000, 6000)))
        self.count = 0

    def run(self) -> Counter[str]:
        """Run it to its end.

        Raises:
            Broken: an invariant does not hold.
        """
        steps = [self.bind, self.start, self.restart, self.end_one, self.end_pod, self.forget]
        weights = [10, 8, 3, 3, 2, 1]
        for _ in range(STEPS):
            (step,) = self.chance.choices(steps, weights)
            step()
        self.drain()
        return self.node.seen

    def bind(self) -> None:
        self.count += 1
        if self.node.bind(f"p{self.count}", self._requests()):
            pod = self.node.pods[f"p{self.count}"]
            if not self.node.admit(pod):
                self.node.end(pod)

    def _requests(self) -> list[ContainerRequest]:
        chance, kinds = self.chance, ["app"]
        kinds += ["app"] * (chance.random() < 0.3)
        first = chance.choice((["init"], ["init", "init"], ["sidecar"], ["sidecar", "init"]))
        kinds = first + kinds if chance.random() < 0.4 else kinds
        cores = chance.choice((0, 50, 100))
        return [
            ContainerRequest(
                f"{kind}-{number}",
                kind,
                chance.choice((1, 1, 1, 2)),
                chance.choice(self.sizes),
                0,
                cores,
            )
            for number, kind in enumerate(kinds)
        ]

    def start(self) -> bool:
        """One container; False = none could start."""
        found = [
            (pod, container)
            for pod in self.node.pods.values()
            if pod.is_known
            for container in pod.startable(self.node.running)
        ]
        self.chance.shuffle(found)
        return any(self.node.start(pod, container) for pod, container in found[:2])

    def restart(self) -> None:
        known = [key for key in sorted(self.node.running) if self.node.pods[key[0]].is_known]
        if known:
            uid, container = self.chance.choice(known)
            pod = self.node.pods[uid]
            # Whose start it is stays unknown while a container of another pod has its devices.
            is_known = not any(
                pod.ids[container] in other.ids.values()
                for other in self.node.pods.values()
                if other is not pod
            )
            if not self.node.start(pod, container) and is_known:
                raise Broken(f"{container} of {uid} cannot start again")

    def end_one(self) -> bool:
        """An init container is done, or an app that is not restarted; False = none runs."""
        # A sidecar runs as long as its pod.
        running = [key for key in sorted(self.node.running) if not key[1].startswith("sidecar")]
        if not running:
            return False
        key = self.chance.choice(running)
        self.node.end_container(key)
        pod = self.node.pods[key[0]]
        if all(each.container in pod.ended for each in pod.requests if each.kind == "app"):
            self.node.end(pod)
        return True

    def end_pod(self) -> None:
        if self.node.pods:
            self.node.end(self._some_pod())

    def forget(self) -> None:
        if self.node.pods:
            self.node.forget(self._some_pod())

    def _some_pod(self) -> Pod:
        return self.chance.choice(list(self.node.pods.values()))

    def drain(self) -> None:
        """Everything that runs ends, one after the other: each container gets its turn."""
        while self.node.pods:
            while self.start_all():
                pass
            if not (self.end_one() or self._end_forgotten()):
                waiting = [pod.uid for pod in self.node.pods.values()]
                raise Broken(f"all of these wait forever: {waiting}")

    def _end_forgotten(self) -> bool:
        forgotten = [pod for pod in self.node.pods.values() if not pod.is_known]
        for pod in forgotten:
            self.node.end(pod)
        return bool(forgotten)

    def start_all(self) -> bool:
        """Every container that can; False = none could."""
        found = [
            self.node.start(pod, container)
            for pod in [*self.node.pods.values()]
            if pod.is_known
            for container in pod.startable(self.node.running)
        ]
        return any(found)


def test_no_history_uses_a_card_beyond_its_size_or_leaves_a_container_waiting() -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        try:
            seen += History(seed).run()
        except Broken as error:
            raise Broken(f"seed {seed}: {error}") from error
    assert not {what: seen[what] for what, floor in HAPPENS.items() if seen[what] < floor}


if __name__ == "__main__":
    print(History(int(sys.argv[1])).run())
