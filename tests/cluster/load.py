"""Several clients that make pods without a pause, while something else changes."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

from cluster import objects, waiting
from cluster.api import Object
from cluster.control_plane import ControlPlane
from cluster.objects import PODS

CLIENTS = 4


class Load:
    """Pods that ask for a card, made and deleted; used in `with`. The first failure ends a client.

    Attributes:
        made: by each client, so far.
        wrong: pods that the webhook has not completed.
    """

    def __init__(self, cluster: ControlPlane) -> None:
        self.made = [0] * CLIENTS
        self.wrong: list[Object] = []
        self._cluster = cluster
        self._stopping = threading.Event()
        self._pool = ThreadPoolExecutor(CLIENTS)
        self._running: list[Future[None]] = []

    def least(self) -> int:
        """How many the slowest client has made."""
        return min(self.made)

    def goes_on(self) -> None:
        """Waits until each client has made ten more; raises what one of them was told instead."""
        wanted = [made + 10 for made in self.made]

        def have() -> bool:
            for client in self._running:
                if client.done():
                    client.result()
            return all(made >= least for made, least in zip(self.made, wanted, strict=True))

        waiting.until(have, "all clients have made ten pods more")

    def _run(self, client: int) -> None:
        # One connection each: threads that share connections close and reopen them.
        api = self._cluster.api_as(f"client-{client}", "system:masters")
        while not self._stopping.is_set():
            # No scheduler handles it, because the test is about the webhook.
            pod = objects.pod(limits={"nvidia.com/gpumem": 3000}, schedulerName="nobody")
            seen = api.create(PODS, pod)
            api.delete(f"{PODS}/{seen['metadata']['name']}", grace_seconds=0)
            (container,) = seen["spec"]["containers"]
            limits, env = container["resources"]["limits"], container.get("env")
            if (
                limits.get("nvidia.com/gpu") != "1"
                or env != [{"name": "CUDA_DEVICE_MEMORY_LIMIT", "value": "3000m"}]
                or seen["metadata"].get("labels") != {"hami.io/pod": "true"}
            ):
                self.wrong.append(seen)
            self.made[client] += 1

    def __enter__(self) -> Load:
        self._running = [self._pool.submit(self._run, client) for client in range(CLIENTS)]
        return self

    def __exit__(self, *unused: object) -> None:
        self._stopping.set()
        self._pool.shutdown()
        for client in self._running:
            client.result()
