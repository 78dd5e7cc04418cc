"""What pods were given: read from the annotation that the binding wrote."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import NamedTuple

from histories.reading import Use, asks, counted, is_started
from histories.refusals import Object

ASSIGNMENT = "hami.io/assignment"


class Instance(NamedTuple):
    """The place of a MIG instance on its card."""

    profile: str
    start: int
    size: int

    @property
    def slices(self) -> int:
        """The memory slices under it, one bit each."""
        return ((1 << self.size) - 1) << self.start


class Grant(NamedTuple):
    """What a container has of one card."""

    card: str
    memory: int
    cores: int
    instance: Instance | None


def grants(pod: Object) -> dict[str, list[Grant]]:
    """Of a bound pod, by container."""
    return _grants(pod["metadata"]["annotations"][ASSIGNMENT])


def said(pod: Object) -> tuple[str, str]:
    """Whose assignment it is, and on which node."""
    assignment = json.loads(pod["metadata"]["annotations"][ASSIGNMENT])
    return assignment["pod"], assignment["node"]


@lru_cache(maxsize=1000)
def _grants(text: str) -> dict[str, list[Grant]]:
    return {
        container: [
            Grant(
                one["card"],
                one["memory_mib"],
                one["cores"],
                Instance(**one["mig"]) if one.get("mig") else None,
            )
            for one in given
        ]
        for container, given in json.loads(text)["containers"].items()
    }


def by_card(pod: Object) -> dict[str, Use]:
    """What a pod has of each card: its init container alone, then its apps together."""
    init = _init_names(pod)
    first: dict[str, Use] = {}
    steady: dict[str, Use] = {}
    for container, given in grants(pod).items():
        into = first if container in init else steady
        for grant in given:
            one = Use(1, grant.memory, grant.cores)
            into[grant.card] = into.get(grant.card, Use()).plus(one)
    started = is_started(pod)
    sums = dict(steady)
    for card, use in first.items():
        # The kubelet keeps the device ID of an init container until the pod is gone.
        left = Use(use.count, 0, 0) if started else use
        sums[card] = sums.get(card, Use()).most(left)
    return sums


def instances(pod: Object) -> dict[str, set[Instance]]:
    """The MIG instances that a pod has of each card; an app has the one of its init container."""
    leaves_out = _init_names(pod) if is_started(pod) else set()
    found: dict[str, set[Instance]] = {}
    for container, given in grants(pod).items():
        for grant in given:
            if grant.instance and container not in leaves_out:
                found.setdefault(grant.card, set()).add(grant.instance)
    return found


def whole(pod: Object) -> set[str]:
    """The cards that a pod has otherwise than by instances."""
    return {grant.card for given in grants(pod).values() for grant in given if not grant.instance}


def in_all(pod: Object) -> Use:
    """What a bound pod counts against quotas."""
    given = grants(pod)
    return counted(
        asks(pod),
        lambda ask: sum(grant.memory for grant in given[ask.container]),
        is_started=is_started(pod),
    )


def overlap(some: set[Instance]) -> bool:
    """Whether two of them share a slice."""
    taken = 0
    for one in some:
        if taken & one.slices:
            return True
        taken |= one.slices
    return False


def _init_names(pod: Object) -> set[str]:
    return {container["name"] for container in pod["spec"].get("initContainers", ())}
