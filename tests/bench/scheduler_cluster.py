"""Under a real API server: the start in a large cluster, and pods bound or reviewed in a second."""

import contextlib
import itertools
import os
import socket
import ssl
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec

from bench.http_client import connections, in_turn
from bench.results import Row
from bench.rows import percentile
from bench.scheduler_programs import extender, webhook
from bench.scheduler_state import Size, fill, limits, node, node_name, row, uid
from cluster import admission, binaries, extended, failing, objects, recordings, waiting
from cluster.api import Api, Object
from cluster.control_plane import ControlPlane, Programs
from cluster.servers import free_ports
from hami_py.model import pods as model

START_S = 60.0
BOUND_RATE = 80.0

#: Objects in one write to etcd, which takes 128 and 1.5 MB.
BATCH = 100

PODS = "/api/v1/namespaces/default/pods"

#: kube-scheduler's lease, as deploy's extender has one to read for each binding.
LEASE = "bench"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


@contextlib.contextmanager
def control_plane(**options: object) -> Iterator[tuple[ControlPlane, Path]]:
    """A real one in a folder that goes with it."""
    programs = Programs(binaries.ensure("control-plane"))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with ControlPlane(programs, folder / "cluster", **options) as cluster:  # type: ignore[arg-type]
            yield cluster, folder


def start(size: Size, runs: int) -> list[Row]:
    """From the start of the process to its readiness, and the memory that it has then."""
    seconds, resident, most = [], [], []
    with control_plane() as (cluster, folder):
        # It would follow 100,000 pods as well, on the same processors.
        cluster.scheduler.stop()
        began = time.perf_counter()
        _store(cluster, size)
        prepared = time.perf_counter() - began
        for _ in range(runs):
            with extender(cluster.kubeconfig, folder) as ours:
                seconds.append(ours.start_s)
                resident.append(ours.resident_mib())
                most.append(ours.resident_mib("VmHWM"))
                ours.check_knows(fill(size))
    note = f"written to etcd beforehand in {prepared:.0f} s"
    return [
        row(f"start from an API server, {size}", seconds, "s", START_S, note=note),
        row("memory of the extender after that", resident, "MiB"),
        row("memory of the extender, the most until then", most, "MiB"),
    ]


def _store(cluster: ControlPlane, size: Size) -> None:
    """Nodes and pods, as the API server would have written them."""
    recorded = recordings.read("admission-review-create")["request"]["object"]
    template = msgspec.json.encode(recorded)

    def stored_pod(at: int) -> Object:
        ours = state.pod(at)
        pod: Object = msgspec.json.decode(template)
        del pod["metadata"]["generateName"]
        pod["metadata"].update(ours["metadata"], creationTimestamp="2026-11-22T00:00:00Z")
        pod["spec"]["nodeName"] = ours["spec"]["nodeName"]
        (container,) = pod["spec"]["containers"]
        resources = ours["spec"]["containers"][0]["resources"]["limits"]
        container["resources"] = {"limits": resources, "requests": resources}
        pod["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
        return pod

    def stored_node(at: int) -> Object:
        made = node(at)
        made["metadata"].update(uid=uid(at), creationTimestamp="2026-11-22T00:00:00Z")
        return made

    state = fill(size)
    nodes = ((f"minions/{node_name(at)}", stored_node(at)) for at in range(size.nodes))
    pods = ((f"pods/default/job-{at}", stored_pod(at)) for at in range(size.pods))
    everything = itertools.chain(nodes, pods)
    while batch := dict(itertools.islice(everything, BATCH)):
        cluster.store(batch)


def bound(nodes: int, pods: int, runs: int) -> list[Row]:
    """Pods that wait all at once, from the first binding to the last, as a watch tells."""
    (port,) = free_ports(1)
    rates = []
    with control_plane(scheduler=extended.configuration(port)) as (cluster, folder):
        extended.make_wake(cluster.api)
        for at in range(nodes):
            cluster.api.create("/api/v1/nodes", node(at))
        _take_lease(cluster.api)
        options = ["--lease", f"kube-system/{LEASE}"]
        with extender(cluster.kubeconfig, folder, port, options):
            for run in range(runs):
                rates.append(_bind_all(cluster, run, pods))
                cluster.api.delete_all(PODS)
                waiting.until(lambda: not cluster.api.list(PODS), "the pods are deleted")
            _check_lease(cluster.api, port)
    name = f"bound pods under a lease, {nodes} nodes, {pods:,} pods at once"
    return [row(name, rates, "pods/s", BOUND_RATE, better="higher")]


def _take_lease(api: Api) -> None:
    """As a kube-scheduler on this host would have, hours ago: the extender need not wait."""
    now = datetime.now(timezone.utc)
    spec = {
        "holderIdentity": f"{socket.gethostname()}_bench",
        "leaseDurationSeconds": 3600,
        "acquireTime": _written(now - timedelta(hours=2)),
        "renewTime": _written(now),
        "leaseTransitions": 1,
    }
    api.create(LEASES, {"metadata": {"name": LEASE}, "spec": spec})


def _written(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _check_lease(api: Api, port: int) -> None:
    """It is read, and not taken for one that there is not: of another's nothing is bound."""
    made = failing.pod("another", 1_000, schedulerName=failing.NOBODY)
    made = api.create(PODS, made)
    api.patch(f"{LEASES}/{LEASE}", {"spec": {"holderIdentity": "another_bench"}})
    said = failing.bind(port, made, node_name(0))
    assert "another_bench holds it" in said, said


def _bind_all(cluster: ControlPlane, run: int, pods: int) -> float:
    """Bound pods in a second."""
    cluster.scheduler.stop()

    def create(at: int) -> None:
        asked = limits(1_000 + 500 * (at % 4), 5, 1)
        labels = {"labels": {"hami.io/pod": "true"}}
        cluster.api.create(PODS, objects.pod(f"job-{run}-{at}", asked, metadata=labels))

    with ThreadPoolExecutor(8) as creators:
        list(creators.map(create, range(pods)))
    version = cluster.api.get(PODS)["metadata"]["resourceVersion"]
    at_s: dict[str, float] = {}
    seen = threading.Event()

    def follow() -> None:
        since = version
        # An API server ends the watch of a slow reader, and on a busy machine we may be slow.
        while not seen.is_set():
            for event in cluster.api.watch(f"{PODS}?resourceVersion={since}", seconds=600):
                pod = event["object"]
                since = pod["metadata"]["resourceVersion"]
                if pod["spec"].get("nodeName"):
                    at_s.setdefault(pod["metadata"]["name"], time.perf_counter())
                if len(at_s) == pods:
                    seen.set()
                    return

    watcher = threading.Thread(target=follow, daemon=True)
    watcher.start()
    cluster.scheduler.start()
    if not seen.wait(300):
        there = sum(1 for pod in cluster.api.list(PODS) if pod["spec"].get("nodeName"))
        raise AssertionError(f"{there} of {pods} pods are bound, and {len(at_s)} seen to be")
    watcher.join(10)
    _check(cluster.api.list(PODS), pods)
    return (pods - 1) / (max(at_s.values()) - min(at_s.values()))


def _check(seen: list[Object], pods: int) -> None:
    """Every pod has its card, and no card more than it has."""
    used: dict[str, int] = defaultdict(int)
    for pod in seen:
        assignment = model.assignment_of(model.objects.decode_pod.convert(pod))
        assert assignment is not None, pod["metadata"]["name"]
        for grants in assignment.containers.values():
            for grant in grants:
                used[grant.card] += grant.memory_mib
    assert len(seen) == pods
    assert max(used.values()) <= 81_920


REVIEW_RATE = 1_000.0
REVIEW_MS = 50.0

#: An API server opens few connections; each carries one request at a time.
CONNECTIONS = 16

NAME = "hami-webhook"

#: The subject of the certificate does not matter here, and its authority is younger than this file.
_TRUSTING = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_TRUSTING.check_hostname = False
_TRUSTING.verify_mode = ssl.CERT_NONE


def reviews(runs: int, count: int) -> list[Row]:
    """Reviews by `hami webhook` alone on one processor: with TLS, on connections that are kept."""
    ours, theirs = sorted(os.sched_getaffinity(0))[:2]
    options = ["--namespace", "default", "--name", NAME, "--host", "127.0.0.1"]
    rates, latest = [], []
    with control_plane() as (cluster, folder):
        cluster.scheduler.stop()
        _configurations(cluster)
        before = os.sched_getaffinity(0)
        with webhook(cluster.kubeconfig, folder, options, pinned=ours) as port:
            # The other programs, this load and the idle API server, do not use its processor.
            for pid in (0, cluster.apiserver.pid, cluster.etcd.pid):
                os.sched_setaffinity(pid, {theirs})
            try:
                with connections(CONNECTIONS, port, _TRUSTING) as opened:
                    in_turn(opened, "/mutate", _bodies("warm", count // 4))
                    for run in range(runs):
                        bodies = _bodies(f"{run}", count)
                        answered = in_turn(opened, "/mutate", bodies)
                        _check_reviews(answered.answers, f"{run}")
                        rates.append(count / answered.took_s)
                        latest.append(percentile(answered.seconds, 99) * 1e3)
            finally:
                os.sched_setaffinity(0, before)
    n = runs * count
    note = f"{CONNECTIONS} connections, no error"
    return [
        row(
            "webhook on one core, TLS",
            rates,
            "reviews/s",
            REVIEW_RATE,
            better="higher",
            n=n,
            note=note,
        ),
        row("webhook on one core, TLS, p99", latest, "ms", REVIEW_MS, n=n),
    ]


def _configurations(cluster: ControlPlane) -> None:
    """Where the webhook writes its authority and its rules; no pod is created here."""
    kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    for path, kind in zip(admission.CONFIGURATIONS, kinds, strict=True):
        entry = admission.webhook(
            cluster.authority.certificate, {"url": "https://127.0.0.1:1/mutate"}, rules=[]
        )
        del entry["clientConfig"]["caBundle"]
        version = "admissionregistration.k8s.io/v1"
        made = {"apiVersion": version, "kind": kind, "metadata": {"name": NAME}}
        cluster.api.create(path, {**made, "webhooks": [entry]})


def _bodies(run: str, count: int) -> list[bytes]:
    review = recordings.read("admission-review-create")
    bodies = []
    for at in range(count):
        review["request"]["uid"] = f"{run}-{at}"
        bodies.append(msgspec.json.encode(review))
    return bodies


def _check_reviews(answers: list[bytes], run: str) -> None:
    for at, answer in enumerate(answers):
        response = msgspec.json.decode(answer)["response"]
        assert response["allowed"], response
        assert response["patch"]
        assert response["uid"] == f"{run}-{at}", "each review gets its own answer, in order"
