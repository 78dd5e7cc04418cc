"""Whether a pod would fit, worked out from the API server's objects alone: by trying all plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from histories import kubelet
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
    is_cut,
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


def uses(pods: Iterable[Object], node: str, sizes: Mapping[str, int]) -> dict[str, Use]:
    """What is given of each card of a node, and to how many.

    Args:
        pods: with cards.
        node: which.
        sizes: MiB of its cards.
    """
    sums: dict[str, Use] = {}
    for pod in pods:
        if pod["spec"]["nodeName"] == node:
            for card, use in by_card(pod, sizes).items():
                sums[card] = sums.get(card, Use()).plus(use)
    return sums


def spent(pods: Iterable[Object], namespace: str) -> Use:
    """What counts against the quotas of a namespace."""
    total = Use()
    for pod in pods:
        if pod["metadata"]["namespace"] == namespace:
            total = total.plus(in_all(pod))
    return total


def is_understood(api: FakeApi, pod: Object, node: str) -> bool:
    """Whether it can be said of the pod whether it fits on a node.

    Of cards that are cut it is said of pods with one app container, and perhaps an init container
    before it with one card as it has: then each card can be looked at alone.
    """
    kinds = [(ask.kind, ask.cards) for ask in asks(pod)]
    is_simple = len(kinds) == 1 or (
        len(kinds) == 2 and kinds[0][0] == "init" and kinds[0][1] == kinds[1][1]
    )
    published = api.objects["nodes"].get(("", node))
    return published is not None and (is_simple or not is_cut(published))


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
    if not is_understood(api, pod, name):
        return False
    asked = asks(pod)
    here = [one for one in there if one["spec"]["nodeName"] == name]
    published = api.objects["nodes"]["", name]
    had = {card.uuid: card for card in cards(published).values()}
    sums = uses(here, name, {card.uuid: card.memory for card in had.values()})
    open_ones = [card for card in had.values() if card.is_open and suits(pod, card)]
    if is_cut(published):
        plans = _plans_cut(open_ones, sums, here, asked)
    else:
        plans = _plans(open_ones, sums, asked)
    namespace = pod["metadata"]["namespace"]
    quotas = [
        hard(quota) for (of, _), quota in api.objects["resourcequotas"].items() if of == namespace
    ]
    before = spent(count, namespace)
    allowed = (_is_allowed(asked, memory, before, quotas) for memory in plans)
    if largest:
        judged = list(allowed)
        return bool(judged) and all(judged)
    return any(allowed)


def _is_allowed(
    asked: list[Ask], memory: list[int], before: Use, quotas: list[dict[str, int]]
) -> bool:
    """Whether quotas leave that: MiB on all cards of each container."""
    more = counted(asked, lambda ask: memory[asked.index(ask)], is_started=False)
    after = before.plus(more)
    return all(within_quota(after, more, limits) for limits in quotas)


def _plans(had: list[Card], sums: Mapping[str, Use], asked: list[Ask]) -> Iterator[list[int]]:
    """Of each plan that holds whatever the kubelet chooses, the memory of each container."""
    by_uuid = {card.uuid: card for card in had}
    each = [tuple(combinations(by_uuid, need)) for need in kubelet.needs(asked)]
    for new in product(*each):
        if _holds(by_uuid, sums, asked, new):
            yield [
                sum(ask.memory(by_uuid[uuid]) for uuid in hand)
                for ask, hand in zip(asked, _first_hands(asked, new), strict=True)
            ]


def _first_hands(asked: list[Ask], new: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Those that wait longest are handed on first."""
    waiting: tuple[str, ...] = ()
    hands = []
    for ask, places in zip(asked, new, strict=True):
        reused = waiting[: ask.cards - len(places)]
        hands.append((*reused, *places))
        waiting = (*waiting, *places) if ask.kind == "init" else waiting[len(reused) :]
    return hands


def _holds(
    had: Mapping[str, Card],
    sums: Mapping[str, Use],
    asked: list[Ask],
    new: Sequence[tuple[str, ...]],
) -> bool:
    ids = Counter(uuid for places in new for uuid in places)
    if any(sums.get(uuid, Use()).count + ids[uuid] > had[uuid].slots for uuid in ids):
        return False
    return all(
        len(set(moment.hand)) == len(moment.hand)
        and all(
            takes(card, sums.get(uuid, Use()), here)
            for uuid, card in had.items()
            if (here := [asked[at] for at, on in moment.running if on == uuid])
        )
        for moment in kubelet.moments(asked, new)
    )


def takes(card: Card, use: Use, running: list[Ask]) -> bool:
    """Whether a card that is not cut has room for these at a time."""
    memory = use.memory + sum(ask.memory(card) for ask in running)
    cores = use.cores + sum(ask.cores for ask in running)
    return (
        memory <= card.memory
        and cores <= card.cores
        and not (use.count and any(ask.cores == 100 for ask in running))
        and not (cores >= card.cores and any(ask.cores == 0 for ask in running))
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


def _plans_cut(
    had: list[Card], sums: Mapping[str, Use], here: list[Object], asked: list[Ask]
) -> Iterator[list[int]]:
    """The same of cards that are cut, with the smallest instances and with the largest."""
    offers: list[int] = []
    for card in had:
        offers += _offers_cut(card, sums.get(card.uuid, Use()), here, asked)
    offers.sort()
    wanted = asked[0].cards
    if len(offers) >= wanted:
        for chosen in (offers[:wanted], offers[-wanted:]):
            yield [sum(chosen)] * len(asked)


def _offers_cut(card: Card, use: Use, here: list[Object], asked: list[Ask]) -> list[int]:
    """Of each instance that could be made, its memory."""
    profile = Need.of(card, asked).smallest(card)
    if profile is None or any(card.uuid in whole(pod) for pod in here):
        return []
    taken = 0
    for pod in here:
        for one in instances(pod).get(card.uuid, ()):
            taken |= one.slices
    offers: list[int] = []
    # Places of one size are in a row: who takes the first free one leaves as many as can be.
    for start in sorted(profile.placements):
        place = ((1 << profile.size) - 1) << start
        if not taken & place and use.count + len(offers) < card.slots:
            taken |= place
            offers.append(profile.memory)
    return offers
