"""The assignments of pods, read from the annotation that the binding wrote."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from histories import kubelet
from histories.reading import ContainerRequest, Use, counted, is_started, requests
from histories.status_errors import Object

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
    """The part of one card that a container has."""

    card: str
    memory: int
    cores: int
    instance: Instance | None


def grants(pod: Object) -> dict[str, list[Grant]]:
    """Of a bound pod, by container."""
    return _grants(pod["metadata"]["annotations"][ASSIGNMENT])


def said(pod: Object) -> tuple[str, str]:
    """The pod of an assignment, and its node."""
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


def by_card(pod: Object, sizes: Mapping[str, int]) -> dict[str, Use]:
    """The use of each card by a pod: the most that may run there at a time.

    Its device IDs count as long as the pod exists, also those that only init containers had.

    Args:
        pod: a bound pod.
        sizes: the MiB of cards, to compute the size of a share.
    """
    text = pod["metadata"]["annotations"][ASSIGNMENT]
    requested = tuple(requests(pod))
    known = tuple(sizes.items()) if any(request.mib is None for request in requested) else ()
    return _by_card(text, requested, known, is_started(pod))


@lru_cache(maxsize=2000)
def _by_card(
    text: str,
    requested: tuple[ContainerRequest, ...],
    sizes: tuple[tuple[str, int], ...],
    started: bool,
) -> dict[str, Use]:
    given = _grants(text)
    hands = [tuple(place(grant) for grant in given[request.container]) for request in requested]
    new = kubelet.new_places(requested, hands)
    planned = {
        (at, place(grant)): Use(0, grant.memory, grant.cores)
        for at, request in enumerate(requested)
        for grant in given[request.container]
    }
    if started:
        last = [
            (at, where)
            for at, request in enumerate(requested)
            if request.kind != "init"
            for where in hands[at]
        ]
        moments = [kubelet.Moment((), tuple(last))]
    elif any(grant.instance for grants in given.values() for grant in grants):
        # An instance is there whether or not anything runs in it.
        there = {where: at for at, hand in enumerate(hands) for where in hand}
        moments = [kubelet.Moment((), tuple((at, where) for where, at in there.items()))]
    else:
        moments = list(kubelet.moments(requested, new))
    size = dict(sizes)
    most: dict[str, Use] = {}
    for moment in moments:
        now: dict[str, Use] = {}
        for at, where in moment.running:
            use = planned.get((at, where))
            if use is None:
                request = requested[at]
                share = size.get(where[0], 0) * request.percent // 100
                use = Use(0, share if request.mib is None else request.mib, request.cores)
            now[where[0]] = now.get(where[0], Use()).plus(use)
        for card, use in now.items():
            most[card] = most.get(card, Use()).most(use)
    ids = Counter(card for places in new for card, _ in places)
    return {card: most.get(card, Use()).plus(Use(count)) for card, count in ids.items()}


def place(grant: Grant) -> tuple[str, Instance | None]:
    """The card, or the place on it, that a grant is for."""
    return grant.card, grant.instance


def instances(pod: Object) -> dict[str, list[Instance]]:
    """The MIG instances that a pod has of each card.

    One that an init container leaves to another container is one; two that are alike are two.
    """
    given, requested = grants(pod), requests(pod)
    hands = [tuple(place(grant) for grant in given[request.container]) for request in requested]
    kept = {
        where
        for request, hand in zip(requested, hands, strict=True)
        if request.kind != "init"
        for where in hand
    }
    found: dict[str, list[Instance]] = {}
    for new in kubelet.new_places(requested, hands):
        for card, instance in new:
            if instance and not (is_started(pod) and (card, instance) not in kept):
                found.setdefault(card, []).append(instance)
    return found


def whole(pod: Object) -> set[str]:
    """The cards that a pod has otherwise than by instances."""
    return {grant.card for given in grants(pod).values() for grant in given if not grant.instance}


def in_all(pod: Object) -> Use:
    """The use of quotas by a bound pod."""
    given = grants(pod)
    return counted(
        requests(pod),
        lambda request: sum(grant.memory for grant in given[request.container]),
        is_started=is_started(pod),
    )


def overlap(some: Iterable[Instance]) -> bool:
    """Whether two of them share a slice."""
    taken = 0
    for one in some:
        if taken & one.slices:
            return True
        taken |= one.slices
    return False
