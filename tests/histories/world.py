"""Who else writes to the API server: users, operators, kubelets, the node agent."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from hami_py.model import pods
from hami_py.model.pods import wire
from histories.fake_api import FakeApi
from histories.oracle import CARDS, CORDON, is_started
from histories.refusals import Object
from histories.replica import LABEL

NODES = ("n0", "n1", "n2")
NAMESPACES = ("x", "y")


class World:
    """Each method does one thing by chance and says what it was, or nothing if it could not."""

    def __init__(self, api: FakeApi, chance: random.Random) -> None:
        self._api = api
        self._chance = chance
        self._made = 0

    def pod_comes(self) -> str:
        chance = self._chance
        namespace = chance.choice(NAMESPACES)
        # Few names: one that was used before is another pod of the same name.
        self._made += 1
        name = f"p{self._made if chance.random() < 0.8 else chance.randrange(self._made)}"
        if (namespace, name) in self._api.objects["pods"]:
            name = f"p{self._made}"
        limits = _limits(chance, chance.choice((1, 1, 1, 2)))
        spec: Object = {
            "containers": [_container("main", limits)],
            "terminationGracePeriodSeconds": chance.choice((0, 30)),
            "restartPolicy": chance.choice(("Always", "Never")),
        }
        kind = chance.random()
        if kind < 0.1:
            spec["initContainers"] = [_container("init", {**limits, **_limits(chance, 1)})]
        elif kind < 0.2:
            spec["containers"].append(_container("side", _limits(chance, 1)))
        metadata = {"name": name, "labels": dict(LABEL)}
        made = {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
        self._do("POST", _pods(namespace), made)
        return f"pod {namespace}/{name} comes: {limits}"

    def pod_goes(self) -> str | None:
        return self._of_a_pod(lambda _: True, "is deleted", lambda path: self._do("DELETE", path))

    def pod_starts(self) -> str | None:
        def start(path: str) -> None:
            ready = [{"type": "Initialized", "status": "True"}]
            self._do("PATCH", path, {"metadata": {}, "status": {"conditions": ready}})

        return self._of_a_pod(lambda pod: _runs(pod) and not is_started(pod), "has started", start)

    def pod_ends(self) -> str | None:
        def end(path: str) -> None:
            phase = self._chance.choice(("Succeeded", "Failed"))
            self._do("PATCH", path, {"metadata": {}, "status": {"phase": phase}})

        return self._of_a_pod(_runs, "has ended", end)

    def kubelet_is_done(self) -> str | None:
        def is_going(pod: Object) -> bool:
            return bool(pod["metadata"].get("deletionTimestamp"))

        def remove(path: str) -> None:
            self._do("DELETE", f"{path}?gracePeriodSeconds=0")

        return self._of_a_pod(is_going, "is gone", remove)

    def node_comes(self, name: str | None = None) -> str | None:
        gone = [name for name in NODES if ("", name) not in self._api.objects["nodes"]]
        if name is None and not gone:
            return None
        name = name or self._chance.choice(gone)
        annotations = {CARDS: self._cards(name)}
        made = {"metadata": {"name": name, "annotations": annotations}, "spec": {}}
        self._do("POST", "/api/v1/nodes", made)
        return f"node {name} comes: {annotations[CARDS]}"

    def node_changes(self) -> str | None:
        name = self._some_node()
        if name is None:
            return None
        annotations = {CARDS: self._cards(name), CORDON: None}
        if self._chance.random() < 0.3:
            annotations[CORDON] = f"GPU-{name}-0"
        patch = {"metadata": {"annotations": annotations}}
        self._do("PATCH", f"/api/v1/nodes/{name}", patch)
        return f"node {name} changes: {annotations}"

    def node_goes(self) -> str | None:
        name = self._some_node()
        if name is None:
            return None
        self._do("DELETE", f"/api/v1/nodes/{name}")
        return f"node {name} goes"

    def quota_changes(self) -> str:
        chance = self._chance
        namespace, name = chance.choice(NAMESPACES), f"q{chance.randrange(2)}"
        path = f"/api/v1/namespaces/{namespace}/resourcequotas"
        there = self._api.objects["resourcequotas"].get((namespace, name))
        if there and chance.random() < 0.4:
            self._do("DELETE", f"{path}/{name}")
            return f"quota {namespace}/{name} goes"
        hard = {"limits.nvidia.com/gpumem": str(chance.choice((4000, 8000, 20000)))}
        if chance.random() < 0.3:
            hard = {"limits.nvidia.com/gpu": str(chance.choice((1, 2, 4)))}
        if there:
            self._do("PUT", f"{path}/{name}", {**there, "spec": {"hard": hard}})
        else:
            self._do("POST", path, {"metadata": {"name": name}, "spec": {"hard": hard}})
        return f"quota {namespace}/{name}: {hard}"

    def everything_goes(self) -> None:
        """All pods are deleted."""
        for namespace, name in list(self._api.objects["pods"]):
            self._do("DELETE", f"{_pods(namespace)}/{name}?gracePeriodSeconds=0")

    def _cards(self, node: str) -> str:
        chance = self._chance
        return pods.encode_cards(
            tuple(
                wire.Card(
                    uuid=f"GPU-{node}-{index}",
                    index=index,
                    model="NVIDIA A100-SXM4-80GB",
                    memory_mib=chance.choice((10_000, 10_000, 6_000)),
                    slots=chance.choice((10, 10, 2)),
                    healthy=chance.random() < 0.9,
                )
                for index in range(chance.choice((1, 2, 2)))
            )
        )

    def _some_node(self) -> str | None:
        there = sorted(name for _, name in self._api.objects["nodes"])
        return self._chance.choice(there) if there else None

    def _of_a_pod(
        self, which: Callable[[Object], bool], what: str, act: Callable[[str], Any]
    ) -> str | None:
        found = sorted(key for key, pod in self._api.objects["pods"].items() if which(pod))
        if not found:
            return None
        namespace, name = self._chance.choice(found)
        act(f"{_pods(namespace)}/{name}")
        return f"pod {namespace}/{name} {what}"

    def _do(self, method: str, path: str, body: Object | None = None) -> None:
        code, answer = self._api.request(method, path, None, body)
        assert code == 200, answer


def _pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def _runs(pod: Object) -> bool:
    return bool(pod["spec"].get("nodeName")) and pod["status"]["phase"] == "Pending"


def _limits(chance: random.Random, count: int) -> dict[str, str]:
    cores = chance.choice((0, 0, 30, 50, 100))
    limits = {
        "nvidia.com/gpu": str(count),
        "nvidia.com/gpumem": str(chance.choice((1000, 3000, 4000, 6000, 8000))),
    }
    return {**limits, "nvidia.com/gpucores": str(cores)} if cores else limits


def _container(name: str, limits: dict[str, str]) -> Object:
    return {"name": name, "resources": {"limits": limits}}
