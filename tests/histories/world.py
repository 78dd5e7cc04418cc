"""The other writers of the API server: users, operators, kubelets, the node agent."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec

from hami_py.model import pods
from hami_py.model.pods import wire
from histories import tenants
from histories.fake_api import FakeApi
from histories.reading import CARDS, CORDON, MODE_LABEL, is_initialized
from histories.status_errors import Object

NODES = ("n0", "n1", "n2")
NAMESPACES = ("x", "y")

_MIG_MIB = 24_576
_MIG = wire.Mig(
    (
        wire.MigProfile("1g.6gb", 5_952, 1, (0, 1, 2, 3), 1),
        wire.MigProfile("2g.12gb", 12_032, 2, (0, 2), 2),
        wire.MigProfile("4g.24gb", 24_064, 4, (0,), 4),
    )
)
"""Of an A30: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/"""


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
        made = tenants.pod(chance, name)
        self._do("POST", _pods(namespace), made)
        return f"pod {namespace}/{name} comes: {made['metadata']} {made['spec']}"

    def pod_goes(self) -> str | None:
        # Those that are just being bound are few.
        any_one = self._chance.random() < 0.5

        def may(pod: Object) -> bool:
            return any_one or not pod["spec"].get("nodeName")

        return self._of_a_pod(may, "is deleted", lambda path: self._do("DELETE", path))

    def pod_starts(self) -> str | None:
        def waits(pod: Object) -> bool:
            return _runs(pod) and not is_initialized(pod)

        return self._of_a_pod(waits, "has started", lambda path: self._initialized(path, "True"))

    def pod_restarts(self) -> str | None:
        """A new sandbox, as after a reboot: init containers run again, but for Never."""

        def may(pod: Object) -> bool:
            spec = pod["spec"]
            can = "initContainers" in spec and spec["restartPolicy"] != "Never"
            return can and _runs(pod) and is_initialized(pod)

        return self._of_a_pod(may, "starts anew", lambda path: self._initialized(path, "False"))

    def _initialized(self, path: str, status: str) -> None:
        conditions = [{"type": "Initialized", "status": status}]
        self._do("PATCH", path, {"metadata": {}, "status": {"conditions": conditions}})

    def pod_ends(self) -> str | None:
        def end(path: str) -> None:
            phase = self._chance.choice(("Succeeded", "Failed"))
            self._do("PATCH", path, {"metadata": {}, "status": {"phase": phase}})

        return self._of_a_pod(_runs, "has ended", end)

    def kubelet_is_done(self) -> str | None:
        def is_going(pod: Object) -> bool:
            return bool(pod["metadata"].get("deletionTimestamp"))

        return self._of_a_pod(is_going, "is gone", self._remove)

    def node_comes(self, name: str | None = None) -> str | None:
        gone = [name for name in NODES if ("", name) not in self._api.objects["nodes"]]
        if name is None and not gone:
            return None
        name = name or self._chance.choice(gone)
        is_cut = self._chance.random() < 0.25
        labels = {MODE_LABEL: "mig"} if is_cut else {}
        annotations = {CARDS: self._cards(name, is_cut)}
        metadata = {"name": name, "annotations": annotations, "labels": labels}
        self._do("POST", "/api/v1/nodes", {"metadata": metadata, "spec": {}})
        return f"node {name} comes: {labels} {annotations[CARDS]}"

    def node_changes(self) -> str | None:
        name = self._some_node()
        if name is None:
            return None
        is_cut = bool(self._api.objects["nodes"]["", name]["metadata"]["labels"])
        annotations = {CARDS: self._cards(name, is_cut), CORDON: None}
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
        elif chance.random() < 0.2:
            hard = {"limits.nvidia.com/gpucores": str(chance.choice((50, 100, 300)))}
        if there:
            self._do("PUT", f"{path}/{name}", {**there, "spec": {"hard": hard}})
        else:
            self._do("POST", path, {"metadata": {"name": name}, "spec": {"hard": hard}})
        return f"quota {namespace}/{name}: {hard}"

    def quotas_go(self) -> None:
        """All quotas are deleted."""
        for namespace, name in list(self._api.objects["resourcequotas"]):
            self._do("DELETE", f"/api/v1/namespaces/{namespace}/resourcequotas/{name}")

    def everything_goes(self) -> None:
        """All pods are deleted."""
        for namespace, name in list(self._api.objects["pods"]):
            self._remove(f"{_pods(namespace)}/{name}")

    def _remove(self, path: str) -> None:
        """Delete it, without finalizers and grace period."""
        self._do("PATCH", path, {"metadata": {"finalizers": None}})
        self._do("DELETE", f"{path}?gracePeriodSeconds=0")

    def _cards(self, node: str, is_cut: bool) -> str:
        chance = self._chance

        def card(index: int) -> wire.Card:
            made = wire.Card(
                uuid=f"GPU-{node}-{index}",
                index=index,
                model="NVIDIA A100-SXM4-80GB",
                memory_mib=chance.choice((10_000, 10_000, 6_000)),
                slots=chance.choice((10, 10, 2)),
                healthy=chance.random() < 0.9,
            )
            return msgspec.structs.replace(made, memory_mib=_MIG_MIB, mig=_MIG) if is_cut else made

        return pods.encode_cards(tuple(map(card, range(chance.choice((1, 2, 2, 3))))))

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
        assert code in (200, 201), answer


def _pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def _runs(pod: Object) -> bool:
    return bool(pod["spec"].get("nodeName")) and pod["status"]["phase"] == "Pending"
