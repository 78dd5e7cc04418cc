"""The webhook under load: `hami webhook` alone on one processor, TLS, connections that are kept."""

import os
import ssl

import msgspec

from bench.http_client import connections, in_turn
from bench.results import Row
from bench.rows import percentile
from bench.scheduler_cluster import control_plane
from bench.scheduler_programs import webhook
from bench.scheduler_rows import row
from cluster import admission, recordings
from cluster.control_plane import ControlPlane

RATE = 1_000.0
TARGET_MS = 50.0

#: An API server opens few connections; each carries one request at a time.
CONNECTIONS = 16

NAME = "hami-webhook"

#: The subject of the certificate does not matter here, and its authority is younger than this file.
_TRUSTING = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_TRUSTING.check_hostname = False
_TRUSTING.verify_mode = ssl.CERT_NONE


def reviews(runs: int, count: int) -> list[Row]:
    """So many reviews a run, over all connections at once."""
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
                        _check(answered.answers, f"{run}")
                        rates.append(count / answered.took_s)
                        latest.append(percentile(answered.seconds, 99) * 1e3)
            finally:
                os.sched_setaffinity(0, before)
    n = runs * count
    note = f"{CONNECTIONS} connections, no error"
    return [
        row("webhook on one core, TLS", rates, "reviews/s", RATE, better="higher", n=n, note=note),
        row("webhook on one core, TLS, p99", latest, "ms", TARGET_MS, n=n),
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


def _check(answers: list[bytes], run: str) -> None:
    for at, answer in enumerate(answers):
        response = msgspec.json.decode(answer)["response"]
        assert response["allowed"], response
        assert response["patch"]
        assert response["uid"] == f"{run}-{at}", "each review gets its own answer, in order"
