"""Applies the objects of deploy/, and runs our programs with the arguments from there."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import urllib3
import yaml

from cluster import objects, waiting
from cluster.api import ApiError, Object
from cluster.control_plane import ControlPlane
from cluster.kubectl import kubectl
from cluster.objects import PODS
from cluster.servers import free_ports

DEPLOY = Path(__file__).parents[2] / "deploy"

ENDPOINTS = "/apis/discovery.k8s.io/v1/namespaces/hami-system/endpointslices"


def documents(file: str) -> list[Object]:
    """The objects of one of our manifests."""
    return list(yaml.safe_load_all((DEPLOY / file).read_text()))


def deployment(part: str) -> Object:
    """The Deployment of the webhook or of the scheduler."""
    wanted = documents(f"{part}/deployment.yaml")
    (found,) = [each for each in wanted if each["kind"] == "Deployment"]
    return found


def container(part: str) -> Object:
    """The container of that Deployment in which a program of ours runs."""
    containers = deployment(part)["spec"]["template"]["spec"]["containers"]
    (found,) = [each for each in containers if each["image"].startswith("hami-py:")]
    return dict(found)


def apply(cluster: ControlPlane, folder: Path = DEPLOY) -> str:
    """`kubectl apply -k`, of deploy/ or of a folder that has more, and what it says."""
    done = kubectl(cluster, "apply", "-k", folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def arguments(part: str, settings: Path) -> list[str]:
    """The arguments of that container; the mounted settings file is replaced by this file."""
    wanted = container(part)
    (mounted,) = [each for each in wanted["volumeMounts"] if each["name"] == "settings"]
    there = f"{mounted['mountPath']}/settings.yaml"
    return [each.replace(there, str(settings)) for each in wanted["args"]]


@contextlib.contextmanager
def running(
    cluster: ControlPlane, part: str, *more: str, settings: Path = DEPLOY / "settings.yaml"
) -> Iterator[subprocess.Popen[bytes]]:
    """A program of ours with the arguments of its Deployment, as its service account.

    It ends in order, if the test has not ended it.
    """
    user = cluster.user(f"system:serviceaccount:hami-system:hami-{part}")
    kubeconfig = ("--kubeconfig", str(cluster.kubeconfig_for(user)))
    log = cluster.folder / f"{part}.log"
    given = [*arguments(part, settings), *more, *kubeconfig]
    command = [sys.executable, "-m", "hami_py", *given]
    with log.open("ab") as output, subprocess.Popen(command, stderr=output) as process:
        try:
            yield process
        finally:
            process.terminate()
            assert process.wait(30) == 0, log.read_text()


def publish(cluster: ControlPlane, address: str, port: int) -> str:
    """An endpoint of the webhook's Service, as for a replica that is ready; its path."""
    name = f"hami-webhook-{port}"
    labels = {"kubernetes.io/service-name": "hami-webhook"}
    made = {
        "metadata": {"name": name, "labels": labels},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [{"name": "https", "port": port}],
    }
    cluster.api.create(ENDPOINTS, made)
    return f"{ENDPOINTS}/{name}"


def create_soon(cluster: ControlPlane, pod: Object, path: str = PODS) -> Object:
    """Made as soon as the API server knows the webhook's authority and endpoint."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return cluster.api.create(path, pod)
        except ApiError as error:
            if error.code != 500 or time.monotonic() > deadline:
                raise
            time.sleep(0.2)


@contextlib.contextmanager
def webhook(
    cluster: ControlPlane, address: str, settings: Path = DEPLOY / "settings.yaml"
) -> Iterator[None]:
    """The webhook behind its Service, once it is asked."""
    (port,) = free_ports(1)
    publish(cluster, address, port)
    listen = ("--listen", f"{address}:{port}")

    def is_asked() -> bool:
        asked = objects.pod("p", {"nvidia.com/gpu": 1})
        code, made = cluster.api.request("POST", f"{PODS}?dryRun=All", asked)
        return code == 201 and made["metadata"].get("labels") == {"hami.io/pod": "true"}

    with running(cluster, "webhook", *listen, settings=settings) as process:
        waiting.until(is_asked, "the webhook is asked")
        yield
        assert process.poll() is None


@contextlib.contextmanager
def extender(
    cluster: ControlPlane, port: int, settings: Path = DEPLOY / "settings.yaml"
) -> Iterator[None]:
    """The extender, once it knows the cluster."""
    (probes,) = free_ports(1)
    where = ("--listen", f"127.0.0.1:{port}", "--probes", f"127.0.0.1:{probes}")

    def asked(path: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{probes}/{path}"
        answer = urllib3.request("GET", url, timeout=2.0, retries=False)
        return answer.status, answer.data.decode()

    def is_ready() -> bool:
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            # It may read what preemption looks at, which it does not wait for, too.
            budgets = 'watch_silence_seconds{kind="poddisruptionbudgets"}'
            return asked("readyz")[0] == 200 and budgets in asked("metrics")[1]
        return False

    with running(cluster, "scheduler", *where, settings=settings) as process:
        waiting.until(is_ready, "the extender knows the cluster")
        assert asked("healthz") == (200, "alive\n")
        yield
        assert process.poll() is None
