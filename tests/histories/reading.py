"""Reads requests of pods, cards of nodes and quotas from the API server's objects.

Written for the test alone, from the names' documentation: were the product's readers used here, a
mistake of theirs would be the oracle's, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from histories.status_errors import Object

LABEL = {"hami.io/pod": "true"}
CARDS = "hami.io/cards"
CORDON = "hami.io/cordon"
MODE_LABEL = "hami.io/mode"
MODE_ANNOTATION = "nvidia.com/vgpu-mode"
LIMITS = {
    "count": "limits.nvidia.com/gpu",
    "memory": "limits.nvidia.com/gpumem",
    "cores": "limits.nvidia.com/gpucores",
}


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


@dataclass(frozen=True)
class Profile:
    """A size of MIG instance."""

    name: str
    memory: int
    slices: int
    placements: tuple[int, ...]
    size: int


@dataclass(frozen=True)
class Card:
    """As its node says. ``is_open``: new pods may go there; ``is_cut``: as MIG instances alone."""

    uuid: str
    memory: int
    cores: int
    slots: int
    is_open: bool
    is_cut: bool
    profiles: tuple[Profile, ...]


@dataclass(frozen=True)
class ContainerRequest:
    """The request of a container: ``mib`` on each card, or if that is None, ``percent`` of each.

    Its kind is ``init``, ``sidecar`` or ``app``.
    """

    container: str
    kind: str
    cards: int
    mib: int | None
    percent: int
    cores: int

    def memory(self, card: Card) -> int:
        """MiB of a card that is not cut."""
        return card.memory * self.percent // 100 if self.mib is None else self.mib


def requests(pod: Object) -> list[ContainerRequest]:
    """The requests of the containers, init containers first."""
    spec = pod["spec"]
    first = [
        _of(container, "sidecar" if container.get("restartPolicy") == "Always" else "init")
        for container in spec.get("initContainers", ())
    ]
    return first + [_of(container, "app") for container in spec["containers"]]


def _of(container: Object, kind: str) -> ContainerRequest:
    return _request(container["name"], kind, tuple(container["resources"]["limits"].items()))


@lru_cache(maxsize=1000)
def _request(name: str, kind: str, said: tuple[tuple[str, str], ...]) -> ContainerRequest:
    limits = dict(said)
    mib = limits.get("nvidia.com/gpumem")
    percent = int(limits.get("nvidia.com/gpumem-percentage", 100))
    # A container with the whole card has all of its time, too.
    cores = 100 if mib is None and percent == 100 else 0
    return ContainerRequest(
        name,
        kind,
        int(limits["nvidia.com/gpu"]),
        None if mib is None else int(mib),
        percent,
        int(limits.get("nvidia.com/gpucores", cores)),
    )


def counted(
    requested: list[ContainerRequest],
    shared: Callable[[ContainerRequest], int],
    *,
    is_started: bool,
) -> Use:
    """The use of quotas: the most that runs at a time.

    An init container runs beside the sidecars before it, the apps run beside all of them.

    Args:
        requested: the requests of the pod.
        shared: the MiB on all cards, for a container that requests a share of the memory.
        is_started: init containers never run again.
    """
    first = steady = Use()
    for request in requested:
        memory = shared(request) if request.mib is None else request.mib * request.cards
        one = Use(request.cards, memory, request.cores * request.cards)
        if request.kind == "init":
            first = first.most(steady.plus(one))
        else:
            steady = steady.plus(one)
    return steady if is_started else steady.most(first)


def is_started(pod: Object) -> bool:
    """Its init containers never run again."""
    return pod["spec"]["restartPolicy"] == "Never" and is_initialized(pod)


def is_initialized(pod: Object) -> bool:
    """They are done for now."""
    conditions = pod["status"].get("conditions", ())
    return any((one["type"], one["status"]) == ("Initialized", "True") for one in conditions)


def is_labelled(pod: Object) -> bool:
    """Whether it is followed: the webhook labels pods, and a binding those that it left alone."""
    return bool(LABEL.items() <= pod["metadata"].get("labels", {}).items())


def priority(pod: Object) -> int:
    """By which Kubernetes preempts."""
    return int(pod["spec"].get("priority", 0))


def suits(pod: Object, card: Card) -> bool:
    """Whether the pod wants cards that are shared so."""
    mode = pod["metadata"].get("annotations", {}).get(MODE_ANNOTATION)
    return mode is None or mode == ("mig" if card.is_cut else "hami-core")


def cards(node: Object) -> dict[str, Card]:
    """The cards that a node publishes, by UUID."""
    metadata = node["metadata"]
    annotations = metadata.get("annotations", {})
    cut = is_cut(node)
    kept = annotations.get(CORDON, "").split(",")
    found = _cards(annotations.get(CARDS, '{"cards":[]}'), cut)
    return {
        card.uuid: card
        if card.uuid not in kept
        else Card(card.uuid, card.memory, card.cores, card.slots, False, cut, card.profiles)
        for card in found
    }


def is_cut(node: Object) -> bool:
    """Whether a node gives its cards as MIG instances alone."""
    return bool(node["metadata"].get("labels", {}).get(MODE_LABEL) == "mig")


@lru_cache(maxsize=1000)
def _cards(text: str, is_cut: bool) -> list[Card]:
    return [
        Card(
            card["uuid"],
            card["memory_mib"],
            card.get("cores", 100),
            card.get("slots", 32),
            card.get("healthy", True),
            is_cut,
            tuple(
                Profile(
                    one["name"],
                    one["memory_mib"],
                    one["slices"],
                    tuple(one["placements"]),
                    one["size"],
                )
                for one in card.get("mig", {}).get("profiles", ())
            ),
        )
        for card in json.loads(text)["cards"]
    ]


def hard(quota: Object) -> dict[str, int]:
    """Our limits in a quota."""
    said = quota["spec"]["hard"]
    return {name: int(said[full]) for name, full in LIMITS.items() if full in said}


def within_quota(sums: Use, more: Use, limits: dict[str, int]) -> bool:
    """Whether no limit of those that the pod counts against is exceeded."""
    return all(
        not getattr(more, name) or getattr(sums, name) <= limit for name, limit in limits.items()
    )
