"""The webhook's certificates in the Secret of deploy/, which is empty at first."""

import base64
import contextlib
import http.client
import itertools
import ssl
import subprocess
from collections.abc import Iterator

import pytest

from cluster import objects, waiting
from cluster.admission import CONFIGURATIONS
from cluster.api import Object
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane
from cluster.deployed import DEPLOY, container, create_soon, publish, running
from cluster.kubectl import kubectl
from cluster.objects import PODS
from cluster.servers import free_ports

SECRETS = "/api/v1/namespaces/hami-system/secrets"
SECRET = f"{SECRETS}/hami-webhook"

GPU = {"nvidia.com/gpu": 1}

#: The two ways in which `kubectl apply` finds out what to change.
WAYS: list[tuple[str, ...]] = [(), ("--server-side",)]

pytestmark = pytest.mark.programs("kubectl")


def probe(name: str, address: str, port: int) -> int:
    """The status for a probe of the kubelet, which accepts any certificate; 0: no response."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    link = http.client.HTTPSConnection(address, port, timeout=10, context=context)
    with contextlib.closing(link), contextlib.suppress(OSError):
        link.request("GET", container("webhook")[name]["httpGet"]["path"])
        return link.getresponse().status
    return 0


@contextlib.contextmanager
def replica(cluster: ControlPlane, address: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """One of the webhook, no endpoint yet, whose probes are answered."""
    (port,) = free_ports(1)
    with running(cluster, "webhook", "--listen", f"{address}:{port}") as process:
        waiting.until(lambda: probe("livenessProbe", address, port) == 200, "it is alive")
        yield process, port


def until_ready(address: str, port: int) -> None:
    waiting.until(lambda: probe("readinessProbe", address, port) == 200, "it is ready")


def shown(address: str, port: int) -> bytes:
    """The certificate that a new connection meets."""
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((address, port)))


def held(cluster: ControlPlane) -> bytes:
    """The certificate that the Secret has."""
    text = base64.b64decode(cluster.api.get(SECRET)["data"]["tls.crt"]).decode()
    return ssl.PEM_cert_to_DER_cert(text)


def kept(cluster: ControlPlane) -> list[Object]:
    """The fields that only the webhook writes: the Secret's data, the authorities, the rules."""
    hooks = [cluster.api.get(f"{path}/hami-webhook")["webhooks"] for path in CONFIGURATIONS]
    written = [
        {"trusted": hook["clientConfig"]["caBundle"], "rules": hook["rules"]}
        for hook in itertools.chain(*hooks)
    ]
    return [cluster.api.get(SECRET)["data"], *written]


def make_as_before(cluster: ControlPlane) -> None:
    """The Secret as a webhook once created it: with the same data, and without `kubectl apply`."""
    made = cluster.api.get(SECRET)
    cluster.api.delete(SECRET)
    again = {"metadata": {"name": "hami-webhook"}, "type": "Opaque", "data": made["data"]}
    cluster.api.create(SECRETS, again)


@pytest.mark.parametrize("first", WAYS, ids=["client", "server"])
def test_applying_again_leaves_the_certificates(
    control_plane: StartControlPlane, address: str, first: tuple[str, ...]
) -> None:
    """And who begins afterwards shows the same one, to an API server that trusts the same."""
    cluster = control_plane()

    def apply_by(way: tuple[str, ...]) -> None:
        done = kubectl(cluster, "apply", *way, "-k", DEPLOY)
        assert done.returncode == 0, done.stderr

    apply_by(first)
    assert "data" not in cluster.api.get(SECRET)
    with contextlib.ExitStack() as old:
        before, port = old.enter_context(replica(cluster, address))
        until_ready(address, port)
        slice_ = publish(cluster, address, port)
        create_soon(cluster, objects.pod("p", GPU), f"{PODS}?dryRun=All")
        certificate, ours = shown(address, port), kept(cluster)
        assert certificate == held(cluster)
        for way in (*WAYS, first):
            apply_by(way)
            assert kept(cluster) == ours
            labels = cluster.api.get(SECRET)["metadata"]["labels"]
            assert labels == {"app.kubernetes.io/part-of": "hami"}
        make_as_before(cluster)
        for way in (first, *WAYS):
            apply_by(way)
            assert kept(cluster) == ours
        # Both replicas are replaced, one after the other.
        with contextlib.ExitStack() as new:
            _, next_port = new.enter_context(replica(cluster, address))
            until_ready(address, next_port)
            publish(cluster, address, next_port)
            cluster.api.delete(slice_)
            before.terminate()
            assert before.wait(30) == 0
            assert shown(address, next_port) == certificate
            assert kept(cluster) == ours
            create_soon(cluster, objects.pod("p", GPU), f"{PODS}?dryRun=All")
    done = kubectl(cluster, "delete", "-k", DEPLOY, "--wait=false")
    assert done.returncode == 0, done.stderr
    waiting.gone(cluster.api, SECRET)
