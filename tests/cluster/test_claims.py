"""Pods whose cards a DRA driver of others allocates, and which run under limits of ours.

Kubernetes is unmodified, kube-scheduler too. The oracles are the stub's ledger, what a container's
program sees, and the API server's audit log.
"""

import json
import os
import re
import signal
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any

import pytest

from cluster import audit_log, claimed_pods, claims, images, waiting
from cluster.api import Object
from cluster.claimed_pods import LIMITS, NAMESPACE, OWNER, limits, programs, uses
from cluster.claims import CLASSES, ClaimsCluster, ClaimsDriver
from cluster.conftest import StartWhole
from cluster.gpu_pods import phase
from cluster.limited_pods import FILL, LABEL, MIB, PROGRAM, command, compute, running
from cluster.node_faults import RESTARTS
from cluster.objects import NODES, PODS
from support.running import Started

pytestmark = [pytest.mark.programs("controllers", "kubectl", "node"), pytest.mark.timeout(300)]

#: A driver whose devices are no cards.
NETWORK = "net.example.com"

#: What the driver takes for a context on an A100, by the stub's profile.
CONTEXT_MIB = 413

#: As in test_limited_pods: points above a share, and the part of it that a busy machine leaves.
MORE, LEAST = 5, 0.5

TENANT = "/programs/tenant"

#: Fills the memory, and runs on with a context.
RESTARTED = f"{' '.join(FILL)}; exec {TENANT} idle"

#: What a container can see of what it has: environment, mounts, device nodes, annotations.
SEES = """
env | sort
awk '{ for (i = 7; $i != "-"; i++); print $5, $6, $(i + 1) }' /proc/self/mountinfo
find /dev ! -type d -exec stat -c '%n %F %t:%T %a' {} + | sort
grep -v config.seen /pod/annotations
"""


@pytest.fixture(scope="module")
def claims_cluster(
    whole_cluster: StartWhole, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClaimsCluster]:
    """A cluster with the driver and hami, whose node is one of others."""
    wanted = [*images.whole(), images.busybox()]
    whole = whole_cluster(cards="a100,a100", kubelet_config=RESTARTS, audits=True, wanted=wanted)
    cluster = claimed_pods.install(whole, tmp_path_factory.mktemp("driver"))
    yield cluster
    cluster.driver.server.stop()


@pytest.fixture
def cluster(claims_cluster: ClaimsCluster) -> ClaimsCluster:
    """That cluster, without pods and claims of an earlier test."""
    claims_cluster.clear()
    claims_cluster.gpu.control({"command": "reset-peaks"})
    return claims_cluster


def held(cluster: ClaimsCluster, *cards: str) -> float:
    """The most that was held of these cards at one time, in MiB, by the ledger."""
    of: dict[str, int] = {
        each["uuid"]: each["occupied"]["peak"] for each in cluster.gpu.ledger()["cards"]
    }
    return sum(of[card] for card in cards) / MIB


def fill(cluster: ClaimsCluster, pod: str, container: str = "main") -> Object:
    """The report of a program that takes all memory that it gets."""
    text = cluster.whole.kubectl("exec", pod, f"--container={container}", "--", *FILL)
    report: Object = json.loads(text.splitlines()[-1])
    return report


def test_two_claims_of_a_card_limit_their_pods(cluster: ClaimsCluster) -> None:
    """Takes 30 s for the cluster, which the tests of this file share."""
    amounts = {"four": (4096, 30), "two": (2048, 70)}
    for name, (mib, cores) in amounts.items():
        claims.create(
            cluster.api, name, {"gpu": f"{mib}Mi"}, [claims.opaque("hami.io", {"cores": cores})]
        )
        group = [{"name": "STUB_GPU_GROUP", "value": name}]
        container = uses("main", f"{TENANT} wait", (name, None), env=group)
        cluster.api.create(PODS, claims.pod(name, [container], [name]))
    pods = {name: running(cluster.whole, name) for name in amounts}
    assert {pod["spec"]["schedulerName"] for pod in pods.values()} == {"default-scheduler"}
    assert {claims.results(cluster.api, name)["gpu"]["device"] for name in amounts} == {"gpu-0"}
    card = cluster.gpu.uuids()[0]
    for name, (mib, cores) in amounts.items():
        (process,) = programs(cluster.whole, pods[name]["metadata"]["uid"], TENANT)
        (row,) = limits(process)
        assert (row.uuid, row.memory_limit, row.share) == (card, mib * MIB, cores)
    reports = [fill(cluster, name) for name in amounts]
    assert [each["total"] / MIB for each in reports] == [4096, 2048]
    assert [each["got"] / MIB + CONTEXT_MIB for each in reports] == [4096, 2048]
    with holding(cluster, "four"):
        fill(cluster, "two")
    assert held(cluster, card) == 4096 + 2048
    percent = compute(cluster.whole, [*amounts], 3)
    print(percent)
    for name, (_, cores) in amounts.items():
        assert LEAST * cores <= percent[name] <= cores + MORE


@contextmanager
def holding(cluster: ClaimsCluster, pod: str) -> Iterator[None]:
    """Meanwhile a program in a pod holds all memory that it gets."""
    with Started(command(cluster.whole, pod, *PROGRAM, "hold", "256"), {}) as program:
        program.wait_for("holding")
        yield


def test_containers_and_pods_have_the_amount_of_a_claim_together(cluster: ClaimsCluster) -> None:
    claims.create(cluster.api, "shared", {"gpu": "4Gi"})
    of = {"one": ("a", "b"), "two": ("main",)}
    for pod, names in of.items():
        containers = [uses(name, f"{TENANT} idle", ("shared", None)) for name in names]
        cluster.api.create(PODS, claims.pod(pod, containers, ["shared"]))
    every = [(pod, name) for pod, names in of.items() for name in names]
    for pod, name in every:
        running(cluster.whole, pod)
        waiting.until(lambda: "holding" in cluster.node.output(pod, name), "it has a context")  # noqa: B023
    for pod, name in every:
        report = fill(cluster, pod, name)
        assert report["total"] == 4096 * MIB
        assert report["got"] / MIB == 4096 - CONTEXT_MIB * (len(every) + 1)
    assert held(cluster, *cluster.gpu.uuids()) == 4096


def test_a_claim_without_a_card_changes_nothing(
    cluster: ClaimsCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Its driver's devices have names and UUIDs as those of cards."""
    network = ClaimsDriver(
        cluster.node, cluster.gpu, tmp_path_factory.mktemp("network"), name=NETWORK
    )
    network.start()
    cluster.api.create(CLASSES, claims.device_class(NETWORK, NETWORK))
    claims.create(cluster.api, "link", {"port": "1Gi"}, of=NETWORK)
    seen = []
    for with_limits in (True, False):
        volume = {"volumeMounts": [{"name": "pod", "mountPath": "/pod"}]}
        container = uses("main", SEES, ("link", None), image=images.BUSYBOX, env=[], **volume)
        field = {"path": "annotations", "fieldRef": {"fieldPath": "metadata.annotations"}}
        volumes = [{"name": "pod", "downwardAPI": {"items": [field]}}]
        pod = claims.pod("one", [container], ["link"], volumes=volumes)
        set_limits(cluster, with_limits, pod)
        cluster.api.create(PODS, pod)
        cluster.phase("one", "Succeeded")
        seen.append(cluster.node.output("one"))
        cluster.api.delete(f"{PODS}/one")
        waiting.gone(cluster.api, f"{PODS}/one")
    print(seen[0])
    assert "CLAIM_PORT=" in seen[0]
    assert seen[0] == seen[1]
    set_limits(cluster, True, pod)
    cluster.clear()
    network.server.stop()


def set_limits(cluster: ClaimsCluster, with_limits: bool, pod: Object) -> None:
    """Let the webhook add limits to such a pod, or not."""
    owner = "others" if with_limits else None
    cluster.api.patch(NAMESPACE, {"metadata": {"labels": {OWNER: owner}}})

    def follows() -> bool:
        code, made = cluster.api.request("POST", f"{PODS}?dryRun=All", pod)
        limits = made["spec"]["containers"][0]["resources"].get("limits", {})
        return code == 201 and (LIMITS in limits) == with_limits

    waiting.until(follows, "the webhook follows the label")


def owner_is(cluster: ClaimsCluster, *owners: str) -> bool:
    return claimed_pods.published(claimed_pods.node(cluster.whole)) == {*owners}


def published_since(cluster: ClaimsCluster, version: str) -> list[set[str]]:
    """The owners for whom something was published, after each change of the node until now."""
    path = f"{NODES}?fieldSelector=metadata.name={cluster.node.name}&resourceVersion={version}"
    events = cluster.api.watch(path, seconds=1)
    return [claimed_pods.published(event["object"]) for event in events]


def set_owner(cluster: ClaimsCluster, owner: str) -> str:
    """Set the node's label; the version of the node before that."""
    before = claimed_pods.node(cluster.whole)
    claimed_pods.set_labels(cluster.whole, {OWNER: owner})
    return str(before["metadata"]["resourceVersion"])


def test_the_label_of_an_empty_node_changes_the_owner(cluster: ClaimsCluster) -> None:
    """There and back. The agent is restarted twice."""
    before = set_owner(cluster, "hami")
    waiting.until(lambda: owner_is(cluster, "hami"), "the node has cards")
    set_owner(cluster, "others")
    waiting.until(lambda: owner_is(cluster, "others"), "the node has limits")
    found = published_since(cluster, before)
    print(found)
    assert {"hami"} in found
    assert {"hami", "others"} not in found


def test_the_owner_of_a_node_with_a_pod_does_not_change(cluster: ClaimsCluster) -> None:
    start(cluster, "one")
    before = set_owner(cluster, "hami")

    def told() -> bool:
        events = cluster.api.list("/api/v1/events")
        texts = [each["message"] for each in events if each["reason"] == "OwnerNotChanged"]
        return any("default/one" in text for text in texts)

    waiting.until(told, "an event says so")
    set_owner(cluster, "others")
    assert all(each == {"others"} for each in published_since(cluster, before))


def start(cluster: ClaimsCluster, name: str) -> Object:
    """Run a pod with a claim of its own, of 1 GiB."""
    create(cluster, name)
    return running(cluster.whole, name)


def create(cluster: ClaimsCluster, name: str, **spec: Any) -> None:
    claims.create(cluster.api, name, {"gpu": "1Gi"})
    container = uses("main", f"exec {TENANT} idle", (name, None))
    pod = claims.pod(name, [container], [name], restartPolicy="Always", **spec)
    cluster.api.create(PODS, pod)


def program(cluster: ClaimsCluster, uid: str) -> int:
    """The process of `RESTARTED`; 0 = it does not run."""
    return next(programs(cluster.whole, uid, TENANT), 0)


def why_waiting(cluster: ClaimsCluster, name: str) -> str:
    """Why the kubelet cannot start the container of a pod."""
    (status,) = cluster.api.get(f"{PODS}/{name}")["status"]["containerStatuses"]
    return str(status["state"].get("waiting", {}).get("message", ""))


def test_without_the_agent_nothing_starts(cluster: ClaimsCluster) -> None:
    """Also no container again. Takes 20 s for the agent, which ends and starts."""
    uid = start(cluster, "one")["metadata"]["uid"]
    claimed_pods.set_labels(cluster.whole, dict.fromkeys(LABEL))
    waiting.until(lambda: owner_is(cluster), "the agent has ended")
    os.kill(program(cluster, uid), signal.SIGKILL)
    create(cluster, "two")
    said = waiting.unschedulable(cluster.api, "two")
    assert f"Insufficient {LIMITS}" in said
    create(cluster, "bound", schedulerName="nobody")
    target = {"apiVersion": "v1", "kind": "Node", "name": cluster.node.name}
    binding = {"metadata": {"name": "bound"}, "target": target}
    cluster.api.create(f"{PODS}/bound/binding", binding)
    failed = phase(cluster.control_plane, "bound", "Failed")
    assert failed["status"]["reason"] == "UnexpectedAdmissionError"
    print(waiting.until(partial(why_waiting, cluster, "one"), "the container cannot start again"))
    assert not program(cluster, uid)
    claimed_pods.set_labels(cluster.whole, {**LABEL})
    waiting.until(lambda: owner_is(cluster, "others"), "the agent runs")
    # A change lets the kubelet try again at once.
    cluster.api.patch(f"{PODS}/one", {"metadata": {"annotations": {"hami-py.test/try": "again"}}})
    for name in ("one", "two"):
        uid = running(cluster.whole, name)["metadata"]["uid"]
        (row,) = limits(program(cluster, uid))
        assert row.memory_limit == 1024 * MIB


@pytest.mark.tier("torture")
def test_starts_beside_many_files_of_other_claims(cluster: ClaimsCluster) -> None:
    """Prints how long PreStartContainer takes: until the agent has defined the CDI device."""
    edits = {"mounts": [{"hostPath": "/none", "containerPath": "/none"}] * 740}
    for number in range(100):
        device = {"name": "gpu", "containerEdits": edits}
        made = {"cdiVersion": "0.6.0", "kind": f"other-{number}.example.com/claim"}
        text = json.dumps({**made, "devices": [device]})
        (cluster.node.cdi / f"other-{number}.json").write_text(text)
    took = []
    for number in range(30):
        uid = start(cluster, f"start-{number}")["metadata"]["uid"]
        written = max(file.stat().st_mtime for file in cluster.node.cdi.glob("hami*"))
        took.append(1000 * (written - pre_start_at(cluster, uid)))
    print(f"{len(text)} bytes; ms: {[round(each) for each in took]}")
    print(f"p95: {statistics.quantiles(took, n=20)[-1]:.0f} ms")
    for file in cluster.node.cdi.glob("other-*.json"):
        file.unlink()


def pre_start_at(cluster: ClaimsCluster, uid: str) -> float:
    """When the kubelet called PreStartContainer for a pod last, in seconds since the epoch."""
    line = rf'^I(\d+ \S+) .*Issuing a PreStartContainer call .* podUID="{uid}"'
    *_, at = re.findall(line, cluster.node.kubelet.log.read_text(), re.MULTILINE)
    year = time.localtime().tm_year
    return datetime.strptime(f"{year}{at}", "%Y%m%d %H:%M:%S.%f").astimezone().timestamp()


def test_a_restart_needs_no_api_server(cluster: ClaimsCluster) -> None:
    """The agent is restarted as well. It has read the claim once.

    The last test: afterwards the controllers need half a minute.
    """
    claims.create(cluster.api, "kept", {"gpu": "4Gi"})
    container = uses("main", RESTARTED, ("kept", None))
    pod = claims.pod("one", [container], ["kept"], restartPolicy="Always")
    uid = cluster.api.create(PODS, pod)["metadata"]["uid"]
    running(cluster.whole, "one")
    before = waiting.until(lambda: program(cluster, uid), "the program runs")
    read = audit_log.reads_of_claims(cluster.control_plane)
    assert read.count("kept") == 1
    agent = claimed_pods.agent(cluster.whole)
    agents = {*cluster.whole.processes(agent)}
    cluster.control_plane.apiserver.kill()
    for process in agents:
        os.kill(process, signal.SIGKILL)
    waiting.until(lambda: {*cluster.whole.processes(agent)} - agents, "the agent runs again")
    os.kill(before, signal.SIGKILL)
    waiting.until(lambda: program(cluster, uid) not in (0, before), "the container runs again")
    cluster.control_plane.apiserver.start()
    assert audit_log.reads_of_claims(cluster.control_plane) == read
    totals = re.findall(r'"total": (\d+)', cluster.node.output("one"))
    assert [int(each) / MIB for each in totals] == [4096, 4096]
    assert held(cluster, *cluster.gpu.uuids()) == 4096
