"""Volumes and devices that have to be bound for a pod before kube-scheduler binds it.

Meanwhile it counts the pod as placed, and from 1.35 on says in its status where. When they are not
bound in time, or the binding fails, it takes that back and writes why, and the pod is tried again.
"""

from __future__ import annotations

import random

from histories import feasibility
from histories.fake_api import FakeApi
from histories.reading import is_labelled, requests
from histories.status_errors import Object

WAITS_S = (0.0, 3.0, 8.0, 20.0)

FAILURES = 2
"""Most of a pod, so that it is bound in the end."""


def has_claims(pod: Object) -> bool:
    """Whether anything has to be bound for it."""
    return "volumes" in pod["spec"] or "resourceClaims" in pod["spec"]


def keeps_its_place(pod: Object) -> bool:
    """Whether no other pod may take its cards while they are held.

    A pod that requests no share of a card's time fits only if some is left, and other pods may get
    the rest beside a hold. The deletion of an unwatched pod goes unnoticed, so its hold ends after
    seconds.
    """
    return has_claims(pod) and is_labelled(pod) and all(request.cores for request in requests(pod))


class Claims:
    """Binds volumes and devices for one kube-scheduler.

    Args:
        api: the API server.
        chance: decides how long they take, and whether they fail.
    """

    def __init__(self, api: FakeApi, chance: random.Random) -> None:
        self._api = api
        self._chance = chance
        self._says_where = chance.random() < 0.7
        self._failures: dict[str, int] = {}

    def begin(self, pod: Object, node: str) -> tuple[float, bool]:
        """A node is chosen: for how long they take, and whether they are bound then."""
        if not has_claims(pod):
            return 0.0, True
        if self._says_where:
            self._write(pod, {"nominatedNodeName": node})
        uid = pod["metadata"]["uid"]
        fails = self._failures.get(uid, 0) < FAILURES and self._chance.random() < 0.3
        self._failures[uid] = self._failures.get(uid, 0) + fails
        return self._chance.choice(WAITS_S), not fails

    def failed(self, pod: Object, why: str) -> None:
        """An attempt has failed after a node was chosen."""
        said = {"reason": "SchedulerError", "message": why}
        condition = {"type": "PodScheduled", "status": "False", **said}
        if has_claims(pod):
            self._write(pod, {"nominatedNodeName": None, "conditions": [condition]})

    def _write(self, pod: Object, status: Object) -> None:
        metadata = pod["metadata"]
        there = self._api.objects["pods"].get((metadata["namespace"], metadata["name"]))
        is_there = there is not None and there["metadata"]["uid"] == metadata["uid"]
        if is_there and there is not None and not there["spec"].get("nodeName"):
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
            self._api.request("PATCH", path, None, {"metadata": {}, "status": status})


class Promise:
    """Expects a pod's cards to be there when its claims are bound, if only we change them.

    Args:
        api: the API server.
        pod: a pod whose chosen node is the best one by our scores, with all state known.
        node: that node.

    Attributes:
        called: the pod and the node in words.
    """

    def __init__(self, api: FakeApi, pod: Object, node: str) -> None:
        self.called = f"{pod['metadata']['namespace']}/{pod['metadata']['name']} on {node}"
        self._api = api
        self._pod = pod
        self._node = node
        self._seen = self._others_word()

    def is_broken(self) -> bool:
        """Whether what there was has been given to others since."""
        metadata = self._pod["metadata"]
        there = self._api.objects["pods"].get((metadata["namespace"], metadata["name"]))
        return (
            there is not None
            and there["metadata"]["uid"] == metadata["uid"]
            and not there["metadata"].get("deletionTimestamp")
            and feasibility.is_understood(self._api, self._pod, self._node)
            and self._seen == self._others_word()
            and not feasibility.without(self._api, self._pod, self._node, ())
        )

    def _others_word(self) -> list[object]:
        """The operator's settings for the node and the namespace."""
        node = self._api.objects["nodes"].get(("", self._node), {"metadata": {}})
        namespace = self._pod["metadata"]["namespace"]
        quotas = [
            (name, quota["spec"])
            for (of, name), quota in self._api.objects["resourcequotas"].items()
            if of == namespace
        ]
        return [node["metadata"].get("annotations"), node["metadata"].get("labels"), quotas]
