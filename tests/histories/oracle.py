"""The rules that must hold, computed from the API server's objects alone.

A pod's cards are those of its assignment annotation. It has them from the write that binds it until
its phase is Succeeded or Failed, or until it is deleted. Sums can only grow when a pod is bound, so
they are computed again at each binding, over all pods of the node and of the namespace. Init
containers count as long as they may run again, finished or not.

A card may shrink, and a quota may be lowered, after the last event that the binding replica has
received. So each card is judged by its possible states: all that were true at or after the version
of the replica's watch when the bind began.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from histories import feasibility, kubelet
from histories.assignments import (
    ASSIGNMENT,
    Grant,
    by_card,
    grants,
    in_all,
    instances,
    overlap,
    said,
    whole,
)
from histories.claims import Promise
from histories.fake_api import FakeApi
from histories.reading import (
    Card,
    ContainerRequest,
    Use,
    cards,
    hard,
    is_initialized,
    is_labelled,
    is_started,
    priority,
    requests,
    suits,
    within_quota,
)
from histories.status_errors import Object


class Broken(AssertionError):
    """An invariant does not hold."""


@dataclass
class Belief:
    """The state that the binding replica knew when the bind began."""

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
        belief: of the replica that is binding at this moment; ``None``: no replica of ours.
        seen: the number of each kind of event, because an event that never occurs is not tested.
    """

    def __init__(self, api: FakeApi) -> None:
        self.belief: Belief | None = None
        self.seen: Counter[str] = Counter()
        self._api = api
        self._given: dict[str, str] = {}
        self._bound_last: str | None = None
        self._nodes = Past()
        self._quotas = Past()
        self._pasts = {"nodes": self._nodes, "resourcequotas": self._quotas}
        api.on_write = self._written

    def check_victims(
        self,
        pod: Object,
        proposed: Mapping[str, list[str]],
        answered: Mapping[str, list[str]],
        *,
        knows_all: bool,
    ) -> None:
        """Check that chosen pods are victims, and others only if they exist and are less important.

        Args:
            pod: the pod that preempts.
            proposed: by kube-scheduler, UIDs by node.
            answered: by the extender.
            knows_all: the extender knows the whole state, so the evictions must make enough room.
        """
        there = {one["metadata"]["uid"]: one for one in self._api.objects["pods"].values()}
        for node, uids in answered.items():
            if not set(uids) >= set(proposed[node]):
                raise Broken(f"of {proposed[node]} on {node} not all are to go: {uids}")
            for uid in set(uids) - set(proposed[node]):
                victim = there.get(uid)
                if victim is None:
                    continue
                self.seen["victims added"] += 1
                if victim["spec"].get("nodeName") != node or priority(victim) >= priority(pod):
                    raise Broken(f"pod {uid} is to go from {node} for {pod['metadata']['uid']}")
            if knows_all and feasibility.is_understood(self._api, pod, node):
                self.seen["victims judged"] += 1
                if not feasibility.without(self._api, pod, node, uids):
                    raise Broken(f"{uids} are to go from {node}, and that makes no room")

    def keeps(self, promise: Promise) -> None:
        """Check that a promise to a pod is kept."""
        self.seen["promises kept"] += 1
        if promise.is_broken():
            raise Broken(f"what was held for {promise.called} was given to others")

    def _written(self, kind: str, old: Object | None, new: Object | None) -> None:
        version = self._api.version
        if kind == "pods":
            if new is not None and new["spec"].get("nodeName"):
                self._check_pod(new, old)
        elif (past := self._pasts.get(kind)) is not None:
            told = new or old
            assert told is not None
            key = (told["metadata"].get("namespace"), told["metadata"]["name"])
            past.replaced(key, version, old)

    def _check_pod(self, pod: Object, old: Object | None) -> None:
        uid, node = pod["metadata"]["uid"], pod["spec"]["nodeName"]
        text = pod["metadata"].get("annotations", {}).get(ASSIGNMENT)
        if text is None:
            raise Broken(f"pod {uid} is bound without an assignment")
        if self._given.setdefault(uid, text) != text:
            raise Broken(f"pod {uid} had {self._given[uid]} and now has {text}")
        if old is not None and old["spec"].get("nodeName"):
            self._count(pod, old)
            return
        if said(pod) != (uid, node):
            raise Broken(f"pod {uid} is bound to {node} with {text}")
        if self.belief is None:
            raise Broken(f"pod {uid} is bound, and no replica was asked to")
        if not is_labelled(pod):
            raise Broken(f"pod {uid} is bound, and a new replica would not hear of it")
        self.seen["bound"] += 1
        self.seen["bound without the webhook's label"] += old is not None and not is_labelled(old)
        self.seen["leader change"] += self._bound_last not in (None, self.belief.who)
        self._bound_last = self.belief.who
        self._check_cards(pod, node, self.belief)
        self._check_quotas(pod, self.belief)

    def _count(self, pod: Object, old: Object) -> None:
        if "initContainers" in pod["spec"]:
            if is_initialized(old) and not is_initialized(pod):
                self.seen["init runs again"] += 1
            if is_started(pod) and not is_started(old):
                self.seen["init is done for good"] += 1

    def _check_cards(self, pod: Object, name: str, belief: Belief) -> None:
        now = self._api.objects["nodes"].get(("", name))
        seen = [node for node in self._nodes.since((None, name), belief.nodes, now) if node]
        there = feasibility.holders(self._api)
        sizes: dict[str, int] = {}
        for node in seen:
            for card in cards(node).values():
                sizes[card.uuid] = min(card.memory, sizes.get(card.uuid, card.memory))
        try:
            mine = by_card(pod, sizes)
        except ValueError as error:
            raise Broken(f"{belief.who}: {error}") from error
        sums = feasibility.uses(there, name, sizes)
        others = [one for one in there if one is not pod and one["spec"]["nodeName"] == name]
        had = {uuid: self._believed(pod, uuid, seen, belief) for uuid in mine}
        for uuid, believed in had.items():
            most = Use(
                max(card.slots for card in believed),
                max(card.memory for card in believed),
                max(card.cores for card in believed),
            )
            if sums[uuid].most(most) != most:
                raise Broken(f"{belief.who} overbooked card {uuid}: {sums[uuid]} of {most}")
        for uuid, cut in instances(pod).items():
            theirs = [one for other in others for one in instances(other).get(uuid, ())]
            if overlap(cut) or any(overlap((one, two)) for one in cut for two in theirs):
                raise Broken(f"{belief.who} cut card {uuid} into {cut} beside {theirs}")
            if any(uuid in whole(one) for one in others):
                raise Broken(f"{belief.who} cut card {uuid} into {cut}, and others have it")
        for request in requests(pod):
            self._check_container(pod, request, had)
        self.seen["sidecars"] += any(request.kind == "sidecar" for request in requests(pod))
        self.seen["cards left to choose from"] += kubelet.has_choice(requests(pod))

    def _believed(self, pod: Object, uuid: str, seen: list[Object], belief: Belief) -> list[Card]:
        """The possible states of the card for the replica: one that the pod could have had."""
        is_cut = uuid not in whole(pod)
        had = [card for node in seen if (card := cards(node).get(uuid))]
        fit = [card for card in had if card.is_open and card.is_cut == is_cut and suits(pod, card)]
        if not fit:
            raise Broken(f"{belief.who} gave card {uuid}, which is not to be given: {had}")
        return fit

    def _check_container(
        self, pod: Object, request: ContainerRequest, had: Mapping[str, list[Card]]
    ) -> None:
        """The container has the cards that it requests."""
        given = grants(pod)[request.container]
        places = {(grant.card, grant.instance) for grant in given}
        if len(given) != request.cards or len(places) != request.cards:
            raise Broken(f"{request} was given {given}")
        for at, grant in enumerate(given):
            right = _right_cut if grant.instance else _right
            if not any(right(pod, request, grant, card) for card in had[grant.card]):
                raise Broken(f"{request} was given {grant} of {had[grant.card]}")
            if grant.instance:
                self.seen["instances"] += 1
            if request.mib is None and request.percent < 100:
                self.seen["shares"] += 1
                part = "" if request.cards == 1 else f"-{at}"
                key = f"hami.io/gpumem{part}.{request.container}"
                if pod["metadata"]["annotations"].get(key) != f"{grant.memory}m":
                    raise Broken(f"{request} was given {grant}, and {key} does not say so")

    def _check_quotas(self, pod: Object, belief: Belief) -> None:
        namespace = pod["metadata"]["namespace"]
        sums, more = feasibility.spent(feasibility.holders(self._api), namespace), in_all(pod)
        for key, quota in self._api.objects["resourcequotas"].items():
            if key[0] != namespace:
                continue
            seen = self._quotas.since(key, belief.quotas, quota)
            if not any(old is None or within_quota(sums, more, hard(old)) for old in seen):
                raise Broken(f"{belief.who} exceeded quota {key}: {sums} of {hard(quota)}")


def _right(_: Object, request: ContainerRequest, grant: Grant, card: Card) -> bool:
    return (grant.memory, grant.cores) == (request.memory(card), request.cores)


def _right_cut(pod: Object, request: ContainerRequest, grant: Grant, card: Card) -> bool:
    """An instance that the card can make there: large enough for it, too large for none."""
    instance = grant.instance
    assert instance is not None
    largest = feasibility.Need.of(card, requests(pod)).smallest(card)
    return any(
        one.name == instance.profile
        and instance.start in one.placements
        and (one.size, one.memory) == (instance.size, grant.memory)
        and feasibility.Need.of(card, [request]).is_within(one)
        and largest is not None
        and one.memory <= largest.memory
        for one in card.profiles
    )
