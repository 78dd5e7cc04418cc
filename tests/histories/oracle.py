"""What must be true, worked out from the API server's objects alone.

A pod's cards are what its assignment annotation says, and it has them from the write that binds it
until its phase is Succeeded or Failed or it is gone. Sums can only grow when a pod is bound, so
they are worked out anew at each binding, over all pods of the node and of the namespace.

A card may shrink, and a quota may be lowered, after the replica that binds was last told of it. It
is judged by what it may have believed: anything that was true at or after the version that its
watch had come to when the bind began.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from histories.fake_api import FakeApi
from histories.refusals import Object

ASSIGNMENT = "hami.io/assignment"
CARDS = "hami.io/cards"
CORDON = "hami.io/cordon"
LIMITS = {"gpu": "limits.nvidia.com/gpu", "memory": "limits.nvidia.com/gpumem"}


class Broken(AssertionError):
    """An invariant does not hold."""


@dataclass(frozen=True)
class Use:
    """Of a card, or of a quota: containers or cards, MiB, percent."""

    count: int = 0
    memory: int = 0
    cores: int = 0

    def plus(self, other: Use) -> Use:
        return Use(self.count + other.count, self.memory + other.memory, self.cores + other.cores)

    def most(self, other: Use) -> Use:
        return Use(
            max(self.count, other.count),
            max(self.memory, other.memory),
            max(self.cores, other.cores),
        )


@dataclass
class Belief:
    """What the replica that binds had been told of when the bind began."""

    who: str
    nodes: int
    quotas: int


class Past:
    """Values that objects had, with the version at which each was replaced."""

    def __init__(self) -> None:
        self._values: dict[Any, list[tuple[int, Any]]] = {}

    def replaced(self, key: Any, version: int, value: Any) -> None:
        self._values.setdefault(key, []).append((version, value))

    def since(self, key: Any, version: int, now: Any) -> list[Any]:
        """All values that were there at this version or later."""
        return [value for at, value in self._values.get(key, ()) if at > version] + [now]


class Oracle:
    """Watches every write of the API server.

    Attributes:
        belief: of whoever is binding at this moment; ``None``: nobody of ours.
        bound: bindings so far.
    """

    def __init__(self, api: FakeApi) -> None:
        self.belief: Belief | None = None
        self.bound = 0
        self._api = api
        self._given: dict[str, str] = {}
        self._nodes = Past()
        self._quotas = Past()
        api.on_write = self._written

    def uses(self, node: str) -> dict[str, Use]:
        """What is given of each card of a node, and to how many."""
        sums: dict[str, Use] = {}
        for pod in self._holders():
            if pod["spec"]["nodeName"] == node:
                for card, use in by_card(pod).items():
                    sums[card] = sums.get(card, Use()).plus(use)
        return sums

    def spent(self, namespace: str) -> Use:
        """What counts against the quotas of a namespace."""
        total = Use()
        for pod in self._holders():
            if pod["metadata"]["namespace"] == namespace:
                total = total.plus(in_all(pod))
        return total

    def has_room(self, pod: Object) -> str | None:
        """A node on which a pod of one container would fit."""
        asked = asked_by(pod)
        namespace = pod["metadata"]["namespace"]
        more = Use(asked.count, asked.count * asked.memory, asked.count * asked.cores)
        after = self.spent(namespace).plus(more)
        for (there, _), quota in self._api.objects["resourcequotas"].items():
            if there == namespace and not within_quota(after, more, hard(quota)):
                return None
        for (_, name), node in self._api.objects["nodes"].items():
            uses = self.uses(name)
            free = [
                card
                for card in cards(node).values()
                if _takes(card, uses.get(card["uuid"], Use()), asked)
            ]
            if len(free) >= asked.count:
                return name
        return None

    def _holders(self) -> Iterator[Object]:
        for pod in self._api.objects["pods"].values():
            if pod["spec"].get("nodeName") and pod["status"]["phase"] in ("Pending", "Running"):
                yield pod

    def _written(self, kind: str, old: Object | None, new: Object | None) -> None:
        version = self._api.version
        if kind == "pods":
            if new is not None and new["spec"].get("nodeName"):
                self._check_pod(new, old)
        else:
            told = new or old
            assert told is not None
            key = (told["metadata"].get("namespace"), told["metadata"]["name"])
            past = self._nodes if kind == "nodes" else self._quotas
            past.replaced(key, version, old)

    def _check_pod(self, pod: Object, old: Object | None) -> None:
        uid, node = pod["metadata"]["uid"], pod["spec"]["nodeName"]
        text = pod["metadata"].get("annotations", {}).get(ASSIGNMENT)
        if text is None:
            raise Broken(f"pod {uid} is bound without an assignment")
        if self._given.setdefault(uid, text) != text:
            raise Broken(f"pod {uid} had {self._given[uid]} and now has {text}")
        if old is not None and old["spec"].get("nodeName"):
            return
        said = json.loads(text)
        if (said["pod"], said["node"]) != (uid, node):
            raise Broken(f"pod {uid} is bound to {node} with {text}")
        if self.belief is None:
            raise Broken(f"pod {uid} is bound, and nobody was asked to")
        self.bound += 1
        self._check_cards(pod, node, self.belief)
        self._check_quotas(pod, self.belief)

    def _check_cards(self, pod: Object, name: str, belief: Belief) -> None:
        now = self._api.objects["nodes"].get(("", name))
        seen = [node for node in self._nodes.since((None, name), belief.nodes, now) if node]
        sums = self.uses(name)
        for uuid in by_card(pod):
            had = [card for node in seen if (card := cards(node).get(uuid)) and card["open"]]
            if not had:
                raise Broken(f"{belief.who} gave card {uuid}, which is not to be given")
            most = Use(
                max(card["slots"] for card in had),
                max(card["memory"] for card in had),
                max(card["cores"] for card in had),
            )
            if sums[uuid].most(most) != most:
                raise Broken(f"{belief.who} overbooked card {uuid}: {sums[uuid]} of {most}")

    def _check_quotas(self, pod: Object, belief: Belief) -> None:
        namespace = pod["metadata"]["namespace"]
        sums, more = self.spent(namespace), in_all(pod)
        for key, quota in self._api.objects["resourcequotas"].items():
            if key[0] != namespace:
                continue
            seen = self._quotas.since(key, belief.quotas, quota)
            if not any(old is None or within_quota(sums, more, hard(old)) for old in seen):
                raise Broken(f"{belief.who} exceeded quota {key}: {sums} of {hard(quota)}")


def by_card(pod: Object) -> dict[str, Use]:
    """What a pod has of each card: its init container alone, then its apps together."""
    init = {container["name"] for container in pod["spec"].get("initContainers", ())}
    first: dict[str, Use] = {}
    steady: dict[str, Use] = {}
    for container, grants in json.loads(pod["metadata"]["annotations"][ASSIGNMENT])[
        "containers"
    ].items():
        for grant in grants:
            one = Use(1, grant["memory_mib"], grant["cores"])
            into = first if container in init else steady
            into[grant["card"]] = into.get(grant["card"], Use()).plus(one)
    started = is_started(pod)
    sums = dict(steady)
    for card, use in first.items():
        # The kubelet keeps the device ID of an init container until the pod is gone.
        left = Use(use.count, 0, 0) if started else use
        sums[card] = sums.get(card, Use()).most(left)
    return sums


def in_all(pod: Object) -> Use:
    """What a bound pod counts against quotas."""
    init = {container["name"] for container in pod["spec"].get("initContainers", ())}
    first = steady = Use()
    for container, grants in json.loads(pod["metadata"]["annotations"][ASSIGNMENT])[
        "containers"
    ].items():
        for grant in grants:
            one = Use(1, grant["memory_mib"], grant["cores"])
            if container in init:
                first = first.plus(one)
            else:
                steady = steady.plus(one)
    return steady if is_started(pod) else steady.most(first)


def asked_by(pod: Object) -> Use:
    """Of a pod with one container: cards, and MiB and percent of each."""
    (container,) = pod["spec"]["containers"]
    limits = container["resources"]["limits"]
    names = ("gpu", "gpumem", "gpucores")
    return Use(*(int(limits.get(f"nvidia.com/{name}", 0)) for name in names))


def is_started(pod: Object) -> bool:
    """Its init containers never run again."""
    conditions = pod["status"].get("conditions", ())
    return pod["spec"]["restartPolicy"] == "Never" and any(
        (one["type"], one["status"]) == ("Initialized", "True") for one in conditions
    )


def cards(node: Object) -> dict[str, dict[str, Any]]:
    """The cards that a node publishes, by UUID."""
    annotations = node["metadata"].get("annotations", {})
    kept = annotations.get(CORDON, "").split(",")
    return {
        card["uuid"]: {
            "uuid": card["uuid"],
            "memory": card["memory_mib"],
            "cores": card.get("cores", 100),
            "slots": card.get("slots", 32),
            "open": card.get("healthy", True) and card["uuid"] not in kept,
        }
        for card in json.loads(annotations.get(CARDS, '{"cards":[]}'))["cards"]
    }


def hard(quota: Object) -> dict[str, int]:
    """What a quota says of ours."""
    said = quota["spec"]["hard"]
    return {name: int(said[full]) for name, full in LIMITS.items() if full in said}


def within_quota(sums: Use, more: Use, limits: dict[str, int]) -> bool:
    """Whether no limit of those that the pod counts against is exceeded."""
    rows = (("gpu", sums.count, more.count), ("memory", sums.memory, more.memory))
    return all(not asked or used <= limits.get(name, used) for name, used, asked in rows)


def _takes(card: dict[str, Any], use: Use, asked: Use) -> bool:
    if not card["open"] or use.count >= card["slots"]:
        return False
    if asked.cores == 100 and use.count:
        return False
    if asked.cores == 0 and use.cores >= card["cores"]:
        return False
    return bool(
        use.memory + asked.memory <= card["memory"] and use.cores + asked.cores <= card["cores"]
    )
