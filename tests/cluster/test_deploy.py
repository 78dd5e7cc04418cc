"""`kubectl apply -k deploy/`, as it is, and our programs with the rights that it gives them."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3
import yaml

from cluster import binaries, objects, waiting
from cluster.api import ApiError, Object
from cluster.conftest import StartControlPlane
from cluster.control_plane import ControlPlane
from cluster.extended import assignment, card, node
from cluster.servers import free_ports

DEPLOY = Path(__file__).parents[2] / "deploy"
PODS = "/api/v1/namespaces/default/pods"

#: An address of this machine that is none of 127.0.0.0/8: endpoints there are refused.
ADDRESS = "10.99.99.3"

pytestmark = pytest.mark.tiers("kubectl")


def kubectl(cluster: ControlPlane, *arguments: str) -> str:
    program = str(binaries.folder("kubectl") / "kubectl")
    command = [program, "--kubeconfig", str(cluster.kubeconfig), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def address() -> Iterator[str]:
    subprocess.run(["ip", "address", "replace", f"{ADDRESS}/32", "dev", "lo"], check=True)
    yield ADDRESS
    subprocess.run(["ip", "address", "delete", f"{ADDRESS}/32", "dev", "lo"], check=True)


def scheduler_configuration(port: int) -> Object:
    """deploy's, but for the port and the lease, which one scheduler does not need."""
    wanted: Object = yaml.safe_load((DEPLOY / "scheduler" / "scheduler.yaml").read_text())
    wanted["extenders"][0]["urlPrefix"] = f"http://127.0.0.1:{port}"
    for key in ("apiVersion", "kind", "leaderElection"):
        del wanted[key]
    return wanted


@contextlib.contextmanager
def running(cluster: ControlPlane, part: str, *more: str) -> Iterator[None]:
    """A program of ours with the arguments of its Deployment, as its service account."""
    documents = yaml.safe_load_all((DEPLOY / part / "deployment.yaml").read_text())
    (deployment,) = [each for each in documents if each["kind"] == "Deployment"]
    containers = deployment["spec"]["template"]["spec"]["containers"]
    (arguments,) = [each["args"] for each in containers if each["image"] == "hami-py"]
    user = cluster.user(f"system:serviceaccount:hami-system:hami-{part}")
    kubeconfig = str(cluster.kubeconfig_for(user))
    command = [sys.executable, "-m", "hami_py", *arguments, *more, "--kubeconfig", kubeconfig]
    log = cluster.folder / f"{part}.log"
    with log.open("wb") as output, subprocess.Popen(command, stderr=output) as process:
        try:
            yield
            assert process.poll() is None, log.read_text()
        finally:
            process.terminate()
            assert process.wait(30) == 0, log.read_text()


@contextlib.contextmanager
def webhook(cluster: ControlPlane, address: str) -> Iterator[None]:
    """The webhook behind its Service."""
    (port,) = free_ports(1)
    cluster.api.create(
        "/apis/discovery.k8s.io/v1/namespaces/hami-system/endpointslices",
        {
            "metadata": {
                "name": "hami-webhook",
                "labels": {"kubernetes.io/service-name": "hami-webhook"},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
            "ports": [{"name": "https", "port": port}],
        },
    )
    with running(cluster, "webhook", "--listen", f"{address}:{port}"):
        yield


@contextlib.contextmanager
def extender(cluster: ControlPlane, port: int) -> Iterator[None]:
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

    with running(cluster, "scheduler", *where):
        waiting.until(is_ready, "the extender knows the cluster")
        assert asked("healthz") == (200, "alive\n")
        yield


def create(cluster: ControlPlane, pod: Object) -> Object:
    """Made as soon as the API server knows the webhook's authority and endpoint."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return cluster.api.create(PODS, pod)
        except ApiError as error:
            if error.code != 500 or time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def test_a_pod_goes_all_the_way(control_plane: StartControlPlane, address: str) -> None:
    (port,) = free_ports(1)
    cluster = control_plane(scheduler=scheduler_configuration(port))
    made = kubectl(cluster, "apply", "-k", str(DEPLOY))
    assert "unchanged" not in made
    kubectl(cluster, "apply", "-k", str(DEPLOY))
    changes = kubectl(cluster, "diff", "-k", str(DEPLOY))
    assert not changes

    cluster.api.create("/api/v1/nodes", node("a", [card("a", 0), card("a", 1)]))
    asked = {"nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}
    with extender(cluster, port):
        with webhook(cluster, address):
            pod = create(cluster, objects.pod("one", asked))
            assert pod["spec"]["schedulerName"] == "hami-scheduler"
            waiting.bound(cluster.api, "one")
            (grant,) = assignment(cluster.api, "one").containers["main"]
            assert (grant.memory_mib, grant.cores) == (3000, 30)
            # The assignment is ours.
            change = {"metadata": {"annotations": {"hami.io/assignment": "{}"}}}
            with pytest.raises(ApiError, match="written by hami alone"):
                cluster.api.patch(f"{PODS}/one", change)
            # A pod of another kind is nobody's business.
            plain = cluster.api.create(PODS, objects.pod("plain", {}))
            assert plain["spec"]["schedulerName"] == "default-scheduler"
        with pytest.raises(ApiError, match="failed calling webhook"):
            cluster.api.create(PODS, objects.pod("two", asked))
        cluster.api.create(PODS, objects.pod("plain-too", {}))


def test_the_accounts_may_do_no_more(control_plane: StartControlPlane) -> None:
    cluster = control_plane()
    kubectl(cluster, "apply", "-k", str(DEPLOY))
    for name, questions in {
        "hami-webhook": [("get", "pods"), ("list", "secrets"), ("update", "secrets/other")],
        "hami-scheduler": [("get", "secrets"), ("create", "pods"), ("update", "nodes")],
    }.items():
        for verb, what in questions:
            answer = subprocess.run(
                [
                    binaries.folder("kubectl") / "kubectl",
                    *("--kubeconfig", cluster.kubeconfig, "auth", "can-i", verb, what),
                    *("--as", f"system:serviceaccount:hami-system:{name}", "-n", "hami-system"),
                ],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert answer.stdout.strip() == "no", (name, verb, what, answer)
