"""kube-scheduler's preemption, as far as an extender sees it.

It is tried if a filter rejected a node for now. The victims that kube-scheduler proposes depend on
its own view, which has sums over the node and no cards; here they may be any less important pods.
The extender's answer is used as it is. If it names a pod that kube-scheduler does not know on that
node, the whole attempt fails. Of the remaining nodes, the one with the least important victims is
chosen. The victims are deleted, and from then on the pod is tried on that node first. While the
victims are terminating, the pod evicts no others.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping

from hami_py.model import pods
from hami_py.scheduler.extender_api import MetaPod, MetaVictims, PreemptArgs
from hami_py.scheduler.verbs import Verbs
from histories.fake_api import FakeApi
from histories.reading import priority
from histories.status_errors import Object

Victims = Mapping[str, list[str]]
"""UIDs by node."""

Check = Callable[[Object, Victims, Victims], None]
"""Told of each answer: for which pod, what was proposed, and what the extender said."""


class Preemption:
    """The preemption of one kube-scheduler, for pods that fit nowhere."""

    def __init__(self, api: FakeApi, chance: random.Random, check: Check) -> None:
        self._api = api
        self._chance = chance
        self._check = check
        self._nominated: dict[str, str] = {}

    def node_of(self, pod: Object) -> str | None:
        """Where it is tried first."""
        told: str | None = pod["status"].get("nominatedNodeName")
        return self._nominated.get(pod["metadata"]["uid"], told)

    def attempt(
        self,
        pod: Object,
        nodes: Collection[str],
        on: Callable[[str], list[Object]],
        verbs: Verbs,
    ) -> str | None:
        """Make room for a pod.

        Args:
            pod: the pod that fits nowhere.
            nodes: the nodes where it may fit later.
            on: the pods on a node, as kube-scheduler knows them.
            verbs: the extender.

        Returns:
            A description of the action, if there was one.
        """

        def lower(node: str) -> dict[str, Object]:
            there = on(node)
            return {one["metadata"]["uid"]: one for one in there if priority(one) < priority(pod)}

        nominated = self.node_of(pod)
        if nominated and any(_is_ending(one) for one in lower(nominated).values()):
            return None
        proposed = {node: self._some(lower(node)) for node in sorted(nodes)}
        proposed = {node: uids for node, uids in proposed.items() if uids}
        if not proposed:
            return None
        meta = {
            node: MetaVictims([MetaPod(uid) for uid in uids]) for node, uids in proposed.items()
        }
        asked = PreemptArgs(pods.decode_pod.convert(pod), meta_victims=meta)
        answer = {
            node: [one.uid for one in victims.pods or []]
            for node, victims in verbs.preempt(asked).meta_victims.items()
        }
        self._check(pod, proposed, answer)
        known = {node: {one["metadata"]["uid"]: one for one in on(node)} for node in answer}
        if any(uid not in known[node] for node, uids in answer.items() for uid in uids):
            return "a victim that is not known"
        if not answer:
            return "nobody's going would help"

        def cost(node: str) -> tuple[int, int, int]:
            all_of = [priority(known[node][uid]) for uid in answer[node]]
            return max(all_of), sum(all_of), len(all_of)

        node = min(sorted(answer), key=cost)
        for uid in answer[node]:
            self._delete(known[node][uid])
        self._nominate(pod, node)
        return f"{answer[node]} go from {node} (of {proposed[node]})"

    def _some(self, there: Mapping[str, Object]) -> list[str]:
        if not there:
            return []
        # Few mostly: then others have to be added.
        most = len(there) if self._chance.random() < 0.3 else 1
        return self._chance.sample(sorted(there), self._chance.randint(1, most))

    def _nominate(self, pod: Object, node: str) -> None:
        self._nominated[pod["metadata"]["uid"]] = node
        if self._is_there(pod):
            patch = {"metadata": {}, "status": {"nominatedNodeName": node}}
            self._api.request("PATCH", _path(pod), None, patch)

    def _delete(self, pod: Object) -> None:
        if self._is_there(pod):
            self._api.request("DELETE", _path(pod))

    def _is_there(self, pod: Object) -> bool:
        metadata = pod["metadata"]
        there = self._api.objects["pods"].get((metadata["namespace"], metadata["name"]))
        return there is not None and there["metadata"]["uid"] == metadata["uid"]


def _is_ending(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _path(pod: Object) -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
