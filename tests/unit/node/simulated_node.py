"""A node: pods are bound and deleted, the kubelet picks devices, and containers run.

The kubelet's rules are those of ``histories.kubelet``. The node agent is replaced by a few lines:
it decides about each container before its start, and keeps what it has decided.

Whether something is wrong is computed from two things that the tested code does not write: the
cards that the scheduler has assigned to a container, and the amounts that it requested.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hami_py.model.pods.wire import Assignment, CardAllocation
from hami_py.node.decision import BoundPod, Capacity, Decision, NodeView, Run, Wait, decide
from hami_py.node.devices import DeviceRecord, owners
from histories.kubelet import needs
from histories.reading import ContainerRequest
from unit.node.build import Key

WHOLE = 100


class Broken(AssertionError):
    """An invariant does not hold."""


@dataclass
class Pod:
    """A pod on the node.

    Attributes:
        requests: its containers, in the order in which they start.
        assignment: its cards, as the API server has them.
        ids: by container, the devices that the kubelet picked; empty until it is admitted.
        ended: its containers that have ended and are not started again.
        is_known: the API server has it. It forgets a pod that is deleted by force.
    """

    uid: str
    requests: list[ContainerRequest]
    assignment: Assignment
    ids: dict[str, frozenset[str]] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    is_known: bool = True

    def request(self, container: str) -> ContainerRequest:
        return next(each for each in self.requests if each.container == container)

    def startable(self, running: Iterable[Key]) -> list[str]:
        """The containers that the kubelet would start now."""
        there = {name for uid, name in running if uid == self.uid}
        waiting = [each for each in self.requests if each.container not in self.ended | there]
        if not self.ids or not waiting:
            return []
        if waiting[0].kind != "app":
            # The next one starts when the init container before it has ended.
            before = any(each.kind == "init" for each in self.requests if each.container in there)
            return [] if before else [waiting[0].container]
        if any(each.kind == "init" and each.container in there for each in self.requests):
            return []
        return [each.container for each in waiting]


def amounts(request: ContainerRequest) -> tuple[int, int]:
    """Memory and cores on each card of a container."""
    return request.mib or 0, request.cores


def plus(left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
    return left[0] + right[0], left[1] + right[1]


def most(pod: Pod, assigned: Mapping[str, Iterable[str]]) -> dict[str, tuple[int, int]]:
    """The most that a pod has of each card at any time, if its containers have these cards.

    All moments are counted: each init container beside the sidecars before it, then the others.
    """
    found: dict[str, tuple[int, int]] = {}
    beside: list[ContainerRequest] = []
    moments: list[list[ContainerRequest]] = []
    for request in pod.requests:
        if request.kind == "init":
            moments.append([*beside, request])
        else:
            beside.append(request)
    for moment in [*moments, beside]:
        now: dict[str, tuple[int, int]] = {}
        for request in moment:
            for where in assigned[request.container]:
                now[where] = plus(now.get(where, (0, 0)), amounts(request))
        for where, use in now.items():
            before = found.get(where, (0, 0))
            found[where] = max(before[0], use[0]), max(before[1], use[1])
    return found


class SimulatedNode:
    """The node. Methods do one step and check all invariants.

    Args:
        cards: the MiB of each card.
        chance: decides everything that is not determined.
    """

    def __init__(self, cards: Mapping[str, int], chance: random.Random) -> None:
        self.cards, self.chance = dict(cards), chance
        self.pods: dict[str, Pod] = {}
        self.allocated: dict[Key, tuple[CardAllocation, ...]] = {}
        self.running: set[Key] = set()
        self.waiting: dict[Key, Wait] = {}
        self.seen: Counter[str] = Counter()
        self._free = {f"{uuid}::{number}" for uuid in cards for number in range(6)}

    # The scheduler.

    def bind(self, uid: str, requests: list[ContainerRequest]) -> bool:
        """Bind a pod as the scheduler does: where its cards have room beside what it knows of."""
        plan: dict[str, list[str]] = {}
        waiting: list[str] = []
        for request, new in zip(requests, needs(requests), strict=True):
            reused = waiting[: request.cards - new]
            others = [uuid for uuid in self.cards if uuid not in reused]
            if len(others) < new:
                return False
            plan[request.container] = reused + self.chance.sample(others, new)
            if request.kind == "init":
                waiting += [uuid for uuid in plan[request.container] if uuid not in waiting]
            else:
                waiting = [uuid for uuid in waiting if uuid not in reused]
        assignment = {
            request.container: tuple(
                CardAllocation(uuid, *amounts(request)) for uuid in plan[request.container]
            )
            for request in requests
        }
        pod = Pod(uid, requests, Assignment(1, uid, "n1", assignment))
        self.pods[uid] = pod
        if any(self.is_over(where, use) for where, use in self.assigned().items()):
            del self.pods[uid]
            return False
        return True

    def assigned(self) -> dict[str, tuple[int, int]]:
        """The most that is assigned of each card at any time, by the pods that are known."""
        found: dict[str, tuple[int, int]] = {}
        for pod in self.pods.values():
            if pod.is_known:
                cards = pod.assignment.containers
                by_name = {name: [each.card for each in cards[name]] for name in cards}
                for where, use in most(pod, by_name).items():
                    found[where] = plus(found.get(where, (0, 0)), use)
        return found

    def is_over(self, where: str, use: tuple[int, int]) -> bool:
        return use[0] > self.cards[where] or use[1] > WHOLE

    # The kubelet.

    def admit(self, pod: Pod) -> bool:
        """Pick devices of any cards for all containers of a pod."""
        free, waiting = set(self._free), list[str]()
        picked: dict[str, frozenset[str]] = {}
        for request, new in zip(pod.requests, needs(pod.requests), strict=True):
            hand = self.chance.sample(waiting, request.cards - new)
            for _ in range(new):
                if not free:
                    return False
                device = self.chance.choice(sorted(free))
                free.discard(device)
                hand.append(device)
            if request.kind == "init":
                waiting += [device for device in hand if device not in waiting]
            else:
                waiting = [device for device in waiting if device not in hand]
            picked[request.container] = frozenset(hand)
        self._free, pod.ids = free, picked
        return True

    def start(self, pod: Pod, container: str) -> bool:
        """Ask the agent before the start of a container, and start it unless it has to wait."""
        key = (pod.uid, container)
        is_first = key not in self.allocated
        wait = self._pre_start(pod.ids[container])
        if wait is not None:
            self.waiting[key] = wait
            self.seen["waited"] += 1
            return False
        if self.waiting.pop(key, None) is not None:
            self.seen["waited, then started"] += 1
        self.seen["started" if is_first else "started again"] += 1
        self.running.add(key)
        self.check()
        return True

    # The agent.

    def view(self) -> NodeView:
        kinds = {
            pod.uid: {each.container: each.kind for each in pod.requests}
            for pod in self.pods.values()
        }
        return NodeView(
            {uuid: Capacity(mib) for uuid, mib in self.cards.items()},
            {
                pod.uid: BoundPod(pod.assignment, kinds[pod.uid])  # type: ignore[arg-type]
                for pod in self.pods.values()
                if pod.is_known
            },
            {
                (uid, name): cards
                for (uid, name), cards in self.allocated.items()
                if not (self.pods[uid].is_known and name in self.pods[uid].ended)
            },
        )

    def _pre_start(self, ids: frozenset[str]) -> Wait | None:
        records = [
            DeviceRecord(pod.uid, container, picked, f"{pod.uid}-{container}", "")
            for pod in self.pods.values()
            for container, picked in pod.ids.items()
        ]
        for record in owners(records, ids, lambda uid: not self.pods[uid].is_known):
            key = (record.pod_uid, record.container)
            if key in self.allocated:
                continue
            decision = self._decide(*key)
            if isinstance(decision, Wait):
                return decision
            self.allocated[key] = decision.cards
        return None

    def _decide(self, uid: str, container: str) -> Decision:
        decision = decide(self.view(), uid, container)
        if isinstance(decision, Run):
            request = self.pods[uid].request(container)
            cards = self.pods[uid].assignment.containers[container]
            if cards != decision.cards or {(each.memory_mib, each.cores) for each in cards} != {
                amounts(request)
            }:
                raise Broken(f"{container} has {decision.cards}, and {cards} are assigned")
        return decision

    # Ends.

    def end_container(self, key: Key) -> None:
        """A container ends for good."""
        self.running.remove(key)
        self.pods[key[0]].ended.add(key[1])

    def forget(self, pod: Pod) -> None:
        """The API server forgets a pod that is deleted by force; its containers still run.

        The kubelet may already give its devices to another one (kubernetes 137534).
        """
        pod.is_known = False
        if self.chance.random() < 0.5:
            self._free |= {device for ids in pod.ids.values() for device in ids}
        self.seen["deleted by force"] += bool(self._runs(pod))

    def end(self, pod: Pod) -> None:
        """All containers of a pod have ended, and it is deleted."""
        for key in self._runs(pod):
            self.running.remove(key)
        del self.pods[pod.uid]
        self._free |= {device for ids in pod.ids.values() for device in ids}
        for each in (self.allocated, self.waiting):
            for key in [key for key in each if key[0] == pod.uid]:
                del each[key]

    def _runs(self, pod: Pod) -> list[Key]:
        return [key for key in self.running if key[0] == pod.uid]

    def check(self) -> None:
        """What runs on a card is at most the card."""
        sums: dict[str, tuple[int, int]] = {}
        for uid, container in self.running:
            use = amounts(self.pods[uid].request(container))
            for each in self.pods[uid].assignment.containers[container]:
                sums[each.card] = plus(sums.get(each.card, (0, 0)), use)
        for where, use in sums.items():
            if self.is_over(where, use):
                raise Broken(f"{use} of card {where} are in use: {sorted(self.running)}")
