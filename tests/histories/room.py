"""Whether a pod would fit, worked out from the API server's objects alone.

Asked of pods with one app container, and perhaps an init container before it with one card as it
has: then all of the pod's containers have the same cards, and each card can be looked at alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from histories.fake_api import FakeApi
from histories.given import by_card, in_all, instances, whole
from histories.reading import (
    Ask,
    Card,
    Profile,
    Use,
    asks,
    cards,
    counted,
    hard,
    priority,
    suits,
    within_quota,
)
from histories.refusals import Object


def holders(api: FakeApi) -> list[Object]:
    """The pods that have cards."""
    return [
        pod
        for pod in api.objects["pods"].values()
        if pod["spec"].get("nodeName") and pod["status"]["phase"] in ("Pending", "Running")
    ]


def uses(pods: Iterable[Object], node: str) -> dict[str, Use]:
    """What is given of each card of a node, and to how many."""
    sums: dict[str, Use] = {}
    for pod in pods:
        if pod["spec"]["nodeName"] == node:
            for card, use in by_card(pod).items():
                sums[card] = sums.get(card, Use()).plus(use)
    return sums


def spent(pods: Iterable[Object], namespace: str) -> Use:
    """What counts against the quotas of a namespace."""
    total = Use()
    for pod in pods:
        if pod["metadata"]["namespace"] == namespace:
            total = total.plus(in_all(pod))
    return total


def is_plain(pod: Object) -> bool:
    """Whether the pod is of the kind that is understood here."""
    asked = asks(pod)
    init = [ask for ask in asked if ask.is_init]
    return len(asked) == 1 or (len(asked) == 2 and bool(init) and asked[0].cards == asked[1].cards)


def anywhere(api: FakeApi, pod: Object) -> str | None:
    """A node on which a pod would fit."""
    there = holders(api)
    return next((name for name in names(api) if _fits(api, pod, name, there, there)), None)


def by_preemption(api: FakeApi, pod: Object) -> str | None:
    """A node on which it would if all went that are less important.

    Not where a quota may be in the way, whichever cards are chosen: nobody is evicted for that.
    """
    there = holders(api)
    for name in names(api):
        on_it = [one for one in there if one["spec"]["nodeName"] == name]
        lower = [one for one in on_it if priority(one) < priority(pod)]
        left = [one for one in there if one not in lower]
        if lower and _fits(api, pod, name, left, there, largest=True):
            return name
    return None


def without(api: FakeApi, pod: Object, name: str, gone: Collection[str]) -> bool:
    """Whether it would fit on a node if those pods were gone."""
    left = [one for one in holders(api) if one["metadata"]["uid"] not in gone]
    return _fits(api, pod, name, left, left)


def names(api: FakeApi) -> list[str]:
    """The nodes."""
    return [name for _, name in api.objects["nodes"]]


def _fits(
    api: FakeApi,
    pod: Object,
    name: str,
    there: list[Object],
    count: list[Object],
    *,
    largest: bool = False,
) -> bool:
    """Whether the pod fits on a node beside those pods.

    Args:
        api: what there is.
        pod: which.
        name: the node's name.
        there: pods with cards.
        count: pods that count against quotas.
        largest: quotas are asked as if it got the largest cards that will do.
    """
    asked = asks(pod)
    here = [one for one in there if one["spec"]["nodeName"] == name]
    sums = uses(here, name)
    offers: list[list[int]] = []
    for card in cards(api.objects["nodes"]["", name]).values():
        if not card.is_open or not suits(pod, card):
            continue
        used = sums.get(card.uuid, Use())
        if card.is_cut:
            offers += _offers_cut(card, used, here, asked)
        elif takes(card, used, asked):
            offers.append([ask.memory(card) for ask in asked])
    offers.sort(reverse=largest)
    chosen = offers[: asked[0].cards]
    if len(chosen) < asked[0].cards:
        return False
    more = counted(
        asked,
        lambda ask: sum(memory[asked.index(ask)] for memory in chosen),
        is_started=False,
    )
    namespace = pod["metadata"]["namespace"]
    after = spent(count, namespace).plus(more)
    return all(
        within_quota(after, more, hard(quota))
        for (of, _), quota in api.objects["resourcequotas"].items()
        if of == namespace
    )


def takes(card: Card, use: Use, asked: list[Ask]) -> bool:
    """Whether a card that is not cut has room for one container after the other."""
    if use.count >= card.slots:
        return False
    return all(
        use.memory + ask.memory(card) <= card.memory
        and use.cores + ask.cores <= card.cores
        and not (ask.cores == 100 and use.count)
        and not (ask.cores == 0 and use.cores >= card.cores)
        for ask in asked
    )


@dataclass(frozen=True)
class Need:
    """Of an instance: MiB and slices of time."""

    memory: int
    slices: int

    @classmethod
    def of(cls, card: Card, asked: Iterable[Ask]) -> Need:
        """The most that any of these needs."""
        largest = max(profile.memory for profile in card.profiles)
        slices = max(profile.slices for profile in card.profiles)
        each = [
            (
                min(card.memory * ask.percent // 100, largest) if ask.mib is None else ask.mib,
                -(-ask.cores * slices // 100),
            )
            for ask in asked
        ]
        return cls(max(memory for memory, _ in each), max(slices for _, slices in each))

    def smallest(self, card: Card) -> Profile | None:
        """The smallest profile that will do."""
        enough = [one for one in card.profiles if self.is_within(one)]
        return min(enough, key=lambda one: (one.memory, one.slices, one.size), default=None)

    def is_within(self, profile: Profile) -> bool:
        return profile.memory >= self.memory and profile.slices >= self.slices


def _offers_cut(card: Card, use: Use, here: list[Object], asked: list[Ask]) -> list[list[int]]:
    """Of each instance that could be made, the memory that each container would have."""
    profile = Need.of(card, asked).smallest(card)
    if profile is None or any(card.uuid in whole(pod) for pod in here):
        return []
    taken = 0
    for pod in here:
        for one in instances(pod).get(card.uuid, ()):
            taken |= one.slices
    offers: list[list[int]] = []
    # Places of one size are in a row: who takes the first free one leaves as many as can be.
    for start in sorted(profile.placements):
        place = ((1 << profile.size) - 1) << start
        if not taken & place and use.count + len(offers) < card.slots:
            taken |= place
            offers.append([profile.memory] * len(asked))
    return offers
