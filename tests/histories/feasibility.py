"""Whether a pod would fit, worked out from the API server's objects alone: by trying all plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from histories import kubelet
from histories.assignments import by_card, in_all, instances, whole
from histories.fake_api import FakeApi
from histories.reading import (
    Card,
    ContainerRequest,
    Profile,
    Use,
    cards,
    counted,
    hard,
    is_cut,
    priority,
    requests,
    suits,
    within_quota,
)
from histories.status_errors import Object


def holders(api: FakeApi) -> list[Object]:
    """The pods that have cards."""
    return [
        pod
        for pod in api.objects["pods"].values()
        if pod["spec"].get("nodeName") and pod["status"]["phase"] in ("Pending", "Running")
    ]


def uses(pods: Iterable[Object], node: str, sizes: Mapping[str, int]) -> dict[str, Use]:
    """The use of each card of a node, and the number of its users.

    Args:
        pods: the pods with cards.
        node: the node's name.
        sizes: the MiB of its cards.
    """
    sums: dict[str, Use] = {}
    for pod in pods:
        if pod["spec"]["nodeName"] == node:
            for card, use in by_card(pod, sizes).items():
                sums[card] = sums.get(card, Use()).plus(use)
    return sums


def spent(pods: Iterable[Object], namespace: str) -> Use:
    """The use of the quotas of a namespace."""
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
    kinds = [(request.kind, request.cards) for request in requests(pod)]
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
    """A node on which it would fit without all less important pods.

    Not if a quota may be in the way, for any choice of cards: no pod is evicted for a quota.
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
    """Whether it would fit on a node without those pods."""
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
        api: the API server.
        pod: the pod.
        name: the node's name.
        there: pods with cards.
        count: pods that count against quotas.
        largest: quotas are checked as if it got the largest cards that will do.
    """
    if not is_understood(api, pod, name):
        return False
    requested = requests(pod)
    here = [one for one in there if one["spec"]["nodeName"] == name]
    published = api.objects["nodes"]["", name]
    had = {card.uuid: card for card in cards(published).values()}
    sums = uses(here, name, {card.uuid: card.memory for card in had.values()})
    open_ones = [card for card in had.values() if card.is_open and suits(pod, card)]
    if is_cut(published):
        plans = _plans_cut(open_ones, sums, here, requested)
    else:
        plans = _plans(open_ones, sums, requested)
    namespace = pod["metadata"]["namespace"]
    quotas = [
        hard(quota) for (of, _), quota in api.objects["resourcequotas"].items() if of == namespace
    ]
    before = spent(count, namespace)
    allowed = (_is_allowed(requested, memory, before, quotas) for memory in plans)
    if largest:
        judged = list(allowed)
        return bool(judged) and all(judged)
    return any(allowed)


def _is_allowed(
    requested: list[ContainerRequest], memory: list[int], before: Use, quotas: list[dict[str, int]]
) -> bool:
    """Whether quotas leave that: MiB on all cards of each container."""
    more = counted(requested, lambda request: memory[requested.index(request)], is_started=False)
    after = before.plus(more)
    return all(within_quota(after, more, limits) for limits in quotas)


def _plans(
    had: list[Card], sums: Mapping[str, Use], requested: list[ContainerRequest]
) -> Iterator[list[int]]:
    """The memory of each container, for each plan that holds for every choice of the kubelet."""
    by_uuid = {card.uuid: card for card in had}
    each = [tuple(combinations(by_uuid, need)) for need in kubelet.needs(requested)]
    for new in product(*each):
        if _holds(by_uuid, sums, requested, new):
            yield [
                sum(request.memory(by_uuid[uuid]) for uuid in hand)
                for request, hand in zip(requested, _first_hands(requested, new), strict=True)
            ]


def _first_hands(
    requested: list[ContainerRequest], new: Sequence[tuple[str, ...]]
) -> list[tuple[str, ...]]:
    """Those that wait longest are handed on first."""
    waiting: tuple[str, ...] = ()
    hands = []
    for request, places in zip(requested, new, strict=True):
        reused = waiting[: request.cards - len(places)]
        hands.append((*reused, *places))
        waiting = (*waiting, *places) if request.kind == "init" else waiting[len(reused) :]
    return hands


def _holds(
    had: Mapping[str, Card],
    sums: Mapping[str, Use],
    requested: list[ContainerRequest],
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
            if (here := [requested[at] for at, on in moment.running if on == uuid])
        )
        for moment in kubelet.moments(requested, new)
    )


def takes(card: Card, use: Use, running: list[ContainerRequest]) -> bool:
    """Whether a card that is not cut has room for these at a time."""
    memory = use.memory + sum(request.memory(card) for request in running)
    cores = use.cores + sum(request.cores for request in running)
    return (
        memory <= card.memory
        and cores <= card.cores
        and not (use.count and any(request.cores == 100 for request in running))
        and not (cores >= card.cores and any(request.cores == 0 for request in running))
    )


@dataclass(frozen=True)
class Need:
    """Of an instance: MiB, slices of time, and memory slices, or the MiB of that part of a card."""

    memory: int
    slices: int
    size: float
    share: int

    @classmethod
    def of(cls, card: Card, requested: Iterable[ContainerRequest]) -> Need:
        """The most that any of these needs."""
        largest = max(profile.memory for profile in card.profiles)
        slices = max(profile.slices for profile in card.profiles)
        all_memory = max(
            start + profile.size for profile in card.profiles for start in profile.placements
        )
        requested = list(requested)
        percent = max((each.percent for each in requested if each.mib is None), default=0)
        return cls(
            max(each.mib or 0 for each in requested),
            max(-(-each.cores * slices // 100) for each in requested),
            all_memory * percent / 100,
            min(card.memory * percent // 100, largest),
        )

    def smallest(self, card: Card) -> Profile | None:
        """The smallest profile that will do."""
        enough = [one for one in card.profiles if self.is_within(one)]
        return min(enough, key=lambda one: (one.memory, one.slices, one.size), default=None)

    def is_within(self, profile: Profile) -> bool:
        has_share = profile.size >= self.size or profile.memory >= self.share
        return has_share and profile.memory >= self.memory and profile.slices >= self.slices


def _plans_cut(
    had: list[Card], sums: Mapping[str, Use], here: list[Object], requested: list[ContainerRequest]
) -> Iterator[list[int]]:
    """The same of cards that are cut, with the smallest instances and with the largest."""
    offers: list[int] = []
    for card in had:
        offers += _offers_cut(card, sums.get(card.uuid, Use()), here, requested)
    offers.sort()
    wanted = requested[0].cards
    if len(offers) >= wanted:
        for chosen in (offers[:wanted], offers[-wanted:]):
            yield [sum(chosen)] * len(requested)


def _offers_cut(
    card: Card, use: Use, here: list[Object], requested: list[ContainerRequest]
) -> list[int]:
    """Of each instance that could be made, its memory."""
    profile = Need.of(card, requested).smallest(card)
    if profile is None or any(card.uuid in whole(pod) for pod in here):
        return []
    taken = 0
    for pod in here:
        for one in instances(pod).get(card.uuid, ()):
            taken |= one.slices
    offers: list[int] = []
    # Placements of one size are in a row. Using the first free one leaves as many as possible.
    for start in sorted(profile.placements):
        place = ((1 << profile.size) - 1) << start
        if not taken & place and use.count + len(offers) < card.slots:
            taken |= place
            offers.append(profile.memory)
    return offers
