"""The webhook's replicas are replaced, one after the other, and no review fails."""

import contextlib
import http.client
import json
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from cluster import objects, recordings, waiting
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane
from cluster.deployed import apply, container, create_soon, publish, running
from cluster.objects import PODS
from cluster.servers import free_ports

#: Seconds until all clients know that a replica is no endpoint: the API server and the proxies
#: learn it from a controller, which learns it from the pod.
HEARD = 2.0

#: Clients of either kind.
CLIENTS = 2

GPU = {"nvidia.com/gpumem": 3000}

pytestmark = pytest.mark.programs("kubectl")


@dataclass
class Replicas:
    """The webhook's replicas, and the endpoints that clients know."""

    cluster: ControlPlane
    address: str
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    slices: dict[int, str] = field(default_factory=dict)

    def is_ready(self, port: int) -> bool:
        """As its readiness probe asks, which looks at no certificate."""
        path = container("webhook")["readinessProbe"]["httpGet"]["path"]
        with contextlib.suppress(OSError):
            return ask("GET", self.address, port, path) == 200
        return False

    def start(self, undo: contextlib.ExitStack) -> int:
        """One more, which is an endpoint once it is ready."""
        (port,) = free_ports(1)
        listen = ("--listen", f"{self.address}:{port}")
        self.processes[port] = undo.enter_context(running(self.cluster, "webhook", *listen))
        waiting.until(lambda: self.is_ready(port), f"the replica at {port} is ready")
        self.slices[port] = publish(self.cluster, self.address, port)
        return port

    def end(self, port: int) -> None:
        """As the kubelet does, while others forget it: the hook first, then SIGTERM."""
        hook = container("webhook").get("lifecycle", {}).get("preStop", {}).get("sleep", {})
        steps: list[tuple[float, Callable[[], object]]] = [
            (HEARD, lambda: self.cluster.api.delete(self.slices.pop(port))),
            (float(hook.get("seconds", 0)), self.processes[port].terminate),
        ]
        begin = time.monotonic()
        for after, step in sorted(steps, key=lambda each: each[0]):
            time.sleep(max(0.0, begin + after - time.monotonic()))
            step()
        assert self.processes[port].wait(30) == 0


def ask(method: str, address: str, port: int, path: str, body: bytes | None = None) -> int:
    """The status of an answer, over a connection of its own."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    link = http.client.HTTPSConnection(address, port, timeout=10, context=context)
    with contextlib.closing(link):
        link.request(method, path, body, {"Content-Type": "application/json"})
        return link.getresponse().status


@contextlib.contextmanager
def asked_all_the_while(replicas: Replicas) -> Iterator[list[int]]:
    """Reviews by the API server, over connections that it keeps, and over new ones.

    Yields how many each client has had; one that failed is raised at the end.
    """
    review = json.dumps(recordings.read("admission-review-create")).encode()
    stop, counts = threading.Event(), [0] * 2 * CLIENTS

    def by_the_api_server(number: int) -> None:
        api = replicas.cluster.api_as(f"client-{number}", "system:masters")
        while not stop.is_set():
            made = api.create(f"{PODS}?dryRun=All", objects.pod("p", GPU))
            assert made["metadata"]["labels"] == {"hami.io/pod": "true"}
            counts[number] += 1

    def by_new_connections(number: int) -> None:
        while not stop.is_set():
            ports = list(replicas.slices)
            port = ports[counts[number] % len(ports)]
            assert ask("POST", replicas.address, port, "/mutate", review) == 200
            counts[number] += 1

    with ThreadPoolExecutor(2 * CLIENTS) as pool:
        clients = [pool.submit(by_the_api_server, number) for number in range(CLIENTS)]
        clients += [pool.submit(by_new_connections, CLIENTS + n) for n in range(CLIENTS)]
        try:
            yield counts
        finally:
            stop.set()
        for client in clients:
            client.result(60)


@pytest.mark.timeout(300)
def test_no_review_fails_while_all_replicas_are_replaced(
    control_plane: StartControlPlane, address: str
) -> None:
    """Replaces two replicas under load, at the pace of the Deployment's own `preStop` hook."""
    cluster = control_plane()
    apply(cluster)
    replicas = Replicas(cluster, address)
    with contextlib.ExitStack() as undo:
        old = [replicas.start(undo) for _ in range(2)]
        create_soon(cluster, objects.pod("p", GPU), f"{PODS}?dryRun=All")
        seen: list[list[int]] = []
        with asked_all_the_while(replicas) as counts:
            for port in old:
                # The Deployment's default: a new one is ready before an old one goes.
                replicas.start(undo)
                seen.append(list(counts))
                replicas.end(port)
                seen.append(list(counts))
    for before, after in zip(seen[::2], seen[1::2], strict=True):
        assert all(now > then for then, now in zip(before, after, strict=True))
