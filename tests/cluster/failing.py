"""Helpers of the failure tests: sums of the assignments, an extender, a broken connection."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections import Counter
from datetime import datetime, timezone
from typing import Any
from urllib.parse import urlsplit

import urllib3

from cluster import objects, waiting
from cluster.api import Api, Object
from cluster.control_plane import ControlPlane
from cluster.objects import PODS
from cluster.servers import free_ports
from hami_py.kube import ApiServer
from hami_py.scheduler.service import Scheduler

#: A scheduler that there is not: such pods are bound by the test alone.
NOBODY = "nobody"


def pod(name: str, mib: int, **more: Any) -> Object:
    """A pod with a share of a card."""
    return objects.pod(name, {"nvidia.com/gpu": 1, "nvidia.com/gpumem": mib}, **more)


def given(api: Api) -> Counter[str]:
    """MiB by card, of all bound pods that have not ended, as their annotations say."""
    sums: Counter[str] = Counter()
    for seen in api.list(PODS):
        if not seen["spec"].get("nodeName") or seen["status"].get("phase") in (
            "Succeeded",
            "Failed",
        ):
            continue
        written = seen["metadata"].get("annotations", {}).get("hami.io/assignment")
        if written is None:
            continue
        for shares in json.loads(written)["containers"].values():
            for share in shares:
                sums[share["card"]] += share["memory_mib"]
    return sums


def bound(api: Api) -> dict[str, str]:
    """Nodes by pod, of those that are bound."""
    seen = {one["metadata"]["name"]: one["spec"].get("nodeName") for one in api.list(PODS)}
    return {name: node for name, node in seen.items() if node}


def bind_by_hand(api: Api, made: Object, node: str, card: str, mib: int) -> None:
    """As the extender would write it."""
    uid = made["metadata"]["uid"]
    share = {"card": card, "memory_mib": mib, "cores": 0}
    assignment = {"version": 1, "pod": uid, "node": node, "containers": {"main": [share]}}
    annotations = {"hami.io/assignment": json.dumps(assignment)}
    name = made["metadata"]["name"]
    binding = objects.binding(made, node, uid=uid, annotations=annotations)
    api.create(f"{PODS}/{name}/binding", binding)


def take_lease(api: Api, path: str, holder: str) -> None:
    """Acquire a lease as client-go does, whoever holds it."""
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    before = api.get(path)["spec"]["leaseTransitions"]
    taken = {"holderIdentity": holder, "acquireTime": now, "renewTime": now}
    api.patch(path, {"spec": {**taken, "leaseTransitions": before + 1}})


def ask(port: int, verb: str, arguments: Object) -> Any:
    """The response of an extender; the status is always 200."""
    answer = urllib3.request(
        "POST", f"http://127.0.0.1:{port}/{verb}", json=arguments, timeout=60.0, retries=False
    )
    assert answer.status == 200, answer.data
    return answer.json()


def bind(port: int, made: Object, node: str) -> str:
    """The error of a bind; empty for success."""
    metadata = made["metadata"]
    return str(
        ask(
            port,
            "bind",
            {
                "PodName": metadata["name"],
                "PodNamespace": metadata["namespace"],
                "PodUID": metadata["uid"],
                "Node": node,
            },
        )["Error"]
    )


def fits(port: int, made: Object, *nodes: str) -> list[str]:
    """Where the filter lets it go; an error of the filter's is none."""
    return list(ask(port, "filter", {"Pod": made, "NodeNames": list(nodes)})["NodeNames"])


def filters(scheduler: Scheduler) -> float:
    """How often filter was asked: only to know when kube-scheduler has."""
    wanted = 'hami_scheduler_verb_duration_seconds_count{verb="filter"} '
    lines = scheduler.metrics.exposition().splitlines()
    return float(next(line for line in lines if line.startswith(wanted)).removeprefix(wanted))


class Cable:
    """Forwards connections to a cluster's API server until it is cut; used in `with`."""

    def __init__(self, cluster: ControlPlane) -> None:
        self._cluster = cluster
        self._to = urlsplit(cluster.url).port or 0
        (self.port,) = free_ports(1)
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._ends: list[socket.socket] = []
        self._pumps: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._is_cut = False
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def server(self) -> ApiServer:
        """The API server, by this way."""
        near, far = f"https://127.0.0.1:{self.port}", self._cluster.url
        kubeconfig = self._cluster.folder / "cable.kubeconfig"
        kubeconfig.write_text(self._cluster.kubeconfig.read_text().replace(far, near))
        return ApiServer.connect(kubeconfig)

    def cut(self) -> None:
        """Ends all connections, and new ones at once."""
        with self._lock:
            self._is_cut = True
            for end in self._ends:
                _hang_up(end)

    def fix(self) -> None:
        """New connections go through again."""
        with self._lock:
            self._is_cut = False

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                try:
                    if self._is_cut:
                        raise ConnectionError
                    far = socket.create_connection(("127.0.0.1", self._to), timeout=10)
                except OSError:
                    near.close()
                    continue
                far.settimeout(None)
                self._ends += [near, far]
            for ends in ((near, far), (far, near)):
                pump = threading.Thread(target=_pump, args=ends, daemon=True)
                self._pumps.append(pump)
                pump.start()

    def __enter__(self) -> Cable:
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        _hang_up(self._listener)
        self._listener.close()
        self._thread.join(10)
        self.cut()
        for pump in self._pumps:
            pump.join(10)
        for end in self._ends:
            end.close()


def _hang_up(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    _hang_up(source)
    _hang_up(target)


def until_bound(api: Api, count: int, deadline: float = 120.0) -> dict[str, str]:
    """Nodes by pod, once so many are bound."""

    def look() -> dict[str, str] | None:
        seen = bound(api)
        return seen if len(seen) >= count else None

    return waiting.until(look, f"{count} pods are bound", deadline)
