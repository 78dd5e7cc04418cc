"""Certificates that change every ten seconds for five minutes, and no review fails."""

import base64
import re
import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from cluster import objects
from cluster.admission import CONFIGURATIONS
from cluster.api import Object
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane
from cluster.objects import PODS
from cluster.webhooks import NAME, webhook
from hami_py.webhook.certificates import Lifetimes

ROTATIONS = 30
EVERY_S = 10.0

#: An authority is made every ten seconds and signs three later, when everybody trusts it; what it
#: signed is replaced ten seconds after that at the latest, and it is trusted for three more. In a
#: cluster the same takes eight months and a minute. All are renewed early: on a busy machine the
#: next one may come seconds late.
LIVES = Lifetimes(authority_s=3 * EVERY_S, serving_s=3 * EVERY_S, renew_at=1 / 3, overlap_s=3.0)

#: Clients with a connection each; fewer pods than that in five minutes would be no load.
CLIENTS = 4
LEAST_PODS = 300


def shown(port: int) -> bytes:
    """The certificate that a new connection meets."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain) as link,
    ):
        return link.getpeercert(binary_form=True) or b""


def trusted(cluster: ControlPlane, path: str) -> list[str]:
    """The authorities that the API server trusts, by one of its configurations."""
    (entry,) = cluster.api.get(f"{path}/{NAME}")["webhooks"]
    bundle = base64.b64decode(entry["clientConfig"]["caBundle"]).decode()
    return re.findall(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", bundle, re.S)


def load(cluster: ControlPlane, name: str, stop: threading.Event) -> tuple[int, list[Object]]:
    """Makes and deletes pods; how many, and those that the webhook has not completed."""
    api = cluster.api_as(name, "system:masters")
    made = 0
    wrong: list[Object] = []
    while not stop.is_set():
        # Nobody schedules it: the webhook is what is looked at.
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
            wrong.append(seen)
        made += 1
    return made, wrong


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_thirty_changes_of_everything_and_no_review_fails(
    control_plane: StartControlPlane,
) -> None:
    cluster = control_plane()
    certificates: set[bytes] = set()
    authorities: dict[str, set[str]] = {path: set() for path in CONFIGURATIONS}
    stop = threading.Event()
    with (
        webhook(cluster, period_s=0.5, lifetimes=LIVES, replicas=2) as hook,
        ThreadPoolExecutor() as clients,
    ):
        running = [clients.submit(load, cluster, f"client-{i}", stop) for i in range(CLIENTS)]
        try:
            deadline = time.monotonic() + 2 * ROTATIONS * EVERY_S
            while min(map(len, authorities.values())) <= ROTATIONS:
                assert time.monotonic() < deadline
                if any(client.done() for client in running):
                    break
                certificates.add(shown(hook.server.port))
                for path, seen in authorities.items():
                    seen.update(trusted(cluster, path))
                time.sleep(0.5)
        finally:
            stop.set()
        # A create that failed is raised here, with what the API server said.
        loads = [client.result(60) for client in running]
    assert [wrong for _, wrong in loads] == [[]] * CLIENTS
    assert sum(made for made, _ in loads) > LEAST_PODS
    assert len(certificates) > ROTATIONS
    assert hook.keeper.failures == 0
