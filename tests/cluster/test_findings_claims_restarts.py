"""Claims of a DRA driver that is not ours while something fails or restarts, on a real node.

The driver's log and containerd's log are the oracles.
"""

import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import pytest

from cluster import claims, waiting
from cluster.api import Api
from cluster.claims import Call, ClaimsCluster
from cluster.claims_driver import NAME
from cluster.device_plugin import Interfaces, StartPlugin
from cluster.gpu_pods import pod
from cluster.node import Node
from cluster.objects import PODS

pytestmark = [
    pytest.mark.programs("controllers", "kubectl", "node"),
    pytest.mark.timeout(600),
]

PODS_AT_ONCE = 30

EVENTS = "/api/v1/namespaces/default/events"


@pytest.fixture
def claimed(claims_cluster: ClaimsCluster) -> Iterator[ClaimsCluster]:
    yield claims_cluster
    claims_cluster.clear()


@pytest.fixture(scope="module")
def node(claims_cluster: ClaimsCluster) -> Node:
    return claims_cluster.node


def gaps(times: list[float]) -> list[float]:
    """Seconds between one and the next."""
    return [round(after - before, 1) for before, after in itertools.pairwise(times)]


def kill_sandbox(node: Node, uid: str) -> None:
    """End the sandbox of a pod; the kubelet makes another one."""
    labels = f'labels."io.kubernetes.pod.uid"=={uid},labels."io.cri-containerd.kind"==sandbox'
    sandboxes = node.ctr("containers", "list", "-q", labels).split()
    (sandbox,) = {*sandboxes} & {*node.ctr("tasks", "list", "-q").split()}
    node.ctr("tasks", "kill", "--signal", "SIGKILL", sandbox)


def of_runtime(claimed: ClaimsCluster, uid: str) -> list[str]:
    """The kubelet's calls to containerd for a pod."""
    return [call for call, _ in claims.runtime_calls(claimed.node.containerd.log, uid)]


def refusal(api: Api) -> str:
    """The kubelet's event of the pod ``one``: its claim cannot be prepared."""

    def look() -> str | None:
        for event in api.list(EVENTS):
            is_ours = event["involvedObject"].get("uid") == uid
            if is_ours and event["reason"] == "FailedPrepareDynamicResources":
                return str(event["message"])
        return None

    uid = api.get(f"{PODS}/one")["metadata"]["uid"]
    return waiting.until(look, "the kubelet says that it cannot prepare the claim")


def annotate(api: Api, value: str) -> None:
    """Change the pod ``one``."""
    api.patch(f"{PODS}/one", {"metadata": {"annotations": {"hami-py.test/try": value}}})


def test_an_error_of_prepare_is_retried_after_a_minute_or_when_the_pod_changes(
    claimed: ClaimsCluster,
) -> None:
    claimed.driver.fail("the card is being prepared")
    claims.create(claimed.api, "four", {"gpu": "4Gi"})
    container = claims.uses("main", "true", ("four", None))
    made = claimed.api.create(PODS, claims.pod("one", [container], ["four"]))
    uid = made["metadata"]["uid"]

    def tries(count: int) -> list[float]:
        def look() -> list[float]:
            found = [call.at for call in claimed.driver.calls("NodePrepareResources")]
            return found if len(found) >= count else []

        return waiting.until(look, f"{count} calls", claims.DEADLINE)

    found = tries(3)
    print("seconds between tries:", gaps(found))
    status = claimed.api.get(f"{PODS}/one")["status"]
    assert status["phase"] == "Pending"
    assert "the card is being prepared" in refusal(claimed.api)
    assert not of_runtime(claimed, uid), "there is no sandbox"

    begin = time.time()
    annotate(claimed.api, "again")
    print("seconds from a patch to the next try:", round(tries(len(found) + 1)[-1] - begin, 2))
    claimed.driver.recover()
    annotate(claimed.api, "once more")
    claimed.phase("one", "Succeeded")


def test_a_call_of_prepare_ends_after_45_seconds(claimed: ClaimsCluster) -> None:
    claimed.driver.hold()
    claims.create(claimed.api, "four", {"gpu": "4Gi"})
    container = claims.uses("main", "true", ("four", None))
    claimed.api.create(PODS, claims.pod("one", [container], ["four"]))
    with waiting.timed("from the pod to the kubelet's event"):
        message = refusal(claimed.api)
    assert "DeadlineExceeded" in message
    claimed.driver.recover()
    annotate(claimed.api, "again")
    claimed.phase("one", "Succeeded")


def test_an_error_of_prestart_is_retried_without_another_prepare(
    claimed: ClaimsCluster, plugin: StartPlugin
) -> None:
    asked = plugin()

    def refuse(request: Any, context: Any) -> None:
        context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")

    asked.say("PreStartContainer", refuse)
    claims.create(claimed.api, "four", {"gpu": "4Gi"})
    container = claims.uses("main", "true", ("four", None), count=1)
    made = claimed.api.create(PODS, claims.pod("one", [container], ["four"]))
    found = waiting.until(
        lambda: asked.calls("PreStartContainer")[3:] and asked.calls("PreStartContainer"),
        "four calls",
    )
    print("seconds between tries:", gaps([call.at for call in found]))
    asked.say("PreStartContainer", lambda request, context: None)
    claimed.phase("one", "Succeeded")
    assert len(claimed.driver.calls("NodePrepareResources")) == 1
    uid = made["metadata"]["uid"]
    assert of_runtime(claimed, uid) == ["RunPodSandbox", "CreateContainer main"]


def test_a_restarted_container_keeps_its_prepared_claim(claimed: ClaimsCluster) -> None:
    claims.create(claimed.api, "four", {"gpu": "4Gi"})
    container = claims.uses("main", "sleep 1", ("four", None))
    claimed.api.create(PODS, claims.pod("one", [container], ["four"], restartPolicy="Always"))

    def restarted() -> bool:
        (status,) = claimed.api.get(f"{PODS}/one")["status"].get("containerStatuses") or [{}]
        return bool(status.get("restartCount", 0) >= 2)

    waiting.until(restarted, "the container is restarted twice")
    assert len(claimed.driver.calls("NodePrepareResources")) == 1


def test_a_new_sandbox_prepares_its_claim_again_only_after_a_restart_of_the_kubelet(
    claimed: ClaimsCluster, compiled: Interfaces
) -> None:
    claims.create(claimed.api, "four", {"gpu": "4Gi"})
    container = claims.uses("main", "sleep 1000", ("four", None))
    wanted = claims.pod("one", [container], ["four"], restartPolicy="Always")
    made = claimed.api.create(PODS, wanted)
    claimed.phase("one", "Running")

    def next_sandbox(number: int) -> None:
        kill_sandbox(claimed.node, made["metadata"]["uid"])

        def look() -> bool:
            found = of_runtime(claimed, made["metadata"]["uid"])
            in_new = found.count("RunPodSandbox") == number and found[-1] == "CreateContainer main"
            return in_new and running(claimed.api, ["one"])

        waiting.until(look, "a container runs in the new sandbox", claims.DEADLINE)

    next_sandbox(2)
    assert len(claimed.driver.calls("NodePrepareResources")) == 1
    registered = len(claimed.driver.calls("NotifyRegistrationStatus"))
    claimed.node.kubelet.stop()
    claimed.node.kubelet.start()
    claimed.driver.registered(registered)
    assert len(claimed.driver.calls("NodePrepareResources")) == 1, "the container runs on"
    next_sandbox(3)
    assert len(claimed.driver.calls("NodePrepareResources")) == 2
    assert not claimed.driver.calls("NodeUnprepareResources")
    devices = claims.shown(compiled, claimed.node.pod_resources)["one"]["main"]
    assert (len(devices), len({*devices})) == (2, 1), "pod-resources shows the device twice"


def test_pods_with_claims_that_start_at_once(claimed: ClaimsCluster) -> None:
    """The API server may refuse the kubelet a claim that it does not know to be of its node."""
    names = [f"pod-{number:02}" for number in range(PODS_AT_ONCE)]
    for name in names:
        claims.create(claimed.api, name, {"gpu": "1Gi"})
        container = claims.uses("main", "sleep 1000", (name, None))
        claimed.api.create(PODS, claims.pod(name, [container], [name]))
    waiting.until(lambda: running(claimed.api, names), "all pods run", claims.DEADLINE)
    refused = {
        event["involvedObject"]["name"]
        for event in claimed.api.list(EVENTS)
        if event["involvedObject"]["name"] in names
        and "no relationship found between node" in event["message"]
    }
    print(len(refused), "of", len(names), "pods waited for a claim that the kubelet may not read")
    assert sorted(call.claim for call in claimed.driver.calls("NodePrepareResources")) == names


def test_a_pod_that_arrives_while_the_driver_is_away_waits(claimed: ClaimsCluster) -> None:
    claimed.driver.server.stop()
    claims.create(claimed.api, "four", {"gpu": "4Gi"})
    container = claims.uses("main", "sleep 1000", ("four", None))
    claimed.api.create(PODS, claims.pod("one", [container], ["four"]))

    print(refusal(claimed.api))
    assert claimed.api.get(f"{PODS}/one")["status"]["phase"] == "Pending"
    claimed.driver.start()
    with waiting.timed("from the driver's start to the pod's"):
        waiting.until(lambda: running(claimed.api, ["one"]), "the pod runs", claims.DEADLINE)


def test_a_reboot_fails_pods_with_devices_and_starts_pods_with_claims_again(
    claimed: ClaimsCluster, plugin: StartPlugin
) -> None:
    asked = plugin()
    with_claims, with_devices = ([f"{kind}-{n}" for n in range(4)] for kind in ("claim", "device"))
    for name in with_claims:
        claims.create(claimed.api, name, {"gpu": "4Gi"})
        container = claims.uses("main", "sleep 1000", (name, None))
        claimed.api.create(PODS, claims.pod(name, [container], [name], restartPolicy="Always"))
    for name in with_devices:
        claimed.api.create(PODS, pod(name, restartPolicy="Always"))
    claims.create(claimed.api, "both", {"gpu": "4Gi"})
    container = claims.uses("main", "sleep 1000", ("both", None), count=1)
    claimed.api.create(PODS, claims.pod("both", [container], ["both"], restartPolicy="Always"))
    names = [*with_claims, *with_devices, "both"]
    waiting.until(lambda: running(claimed.api, names), "all pods run", claims.DEADLINE)
    before = len(claimed.driver.calls("NodePrepareResources answered"))

    claimed.driver.server.kill()
    claimed.gpu.crash()
    claimed.node.crash()
    for file in claimed.node.cdi.glob(f"{NAME}*"):
        # /run is in memory.
        file.unlink()
    registered = len(claimed.driver.calls("NotifyRegistrationStatus"))
    claimed.node.boot()
    booted = time.time()
    claimed.gpu.start(claimed.node)

    def again() -> list[Call]:
        """The calls since the boot."""
        return claimed.driver.calls("NodePrepareResources answered")[before:]

    def failed(*names: str) -> bool:
        return {phase_of(claimed.api, name) for name in names} == {"Failed"}

    def run_again() -> bool:
        return len(again()) >= len(with_claims) and running(claimed.api, with_claims)

    waiting.until(lambda: failed(*with_devices), "the pods with devices are Failed")
    assert not failed("both"), "the kubelet cannot unprepare its claim"
    # Driver and plugin are pods, and are admitted with all others: they start later.
    claimed.driver.server.start()
    asked.stop()
    asked.serve()
    asked.register()
    claimed.driver.registered(registered)
    waiting.until(lambda: failed("both"), "the pod with both is Failed", claims.DEADLINE)
    waiting.until(run_again, "the pods with claims run", claims.DEADLINE)
    print("seconds from the boot to the calls:", [round(call.at - booted, 1) for call in again()])
    assert sorted(call.claim for call in again()) == with_claims
    unprepared = {call.claim for call in claimed.driver.calls("NodeUnprepareResources")}
    assert unprepared == {"both"}
    reason = claimed.api.get(f"{PODS}/{with_devices[0]}")["status"]["reason"]
    assert reason == "UnexpectedAdmissionError"


def phase_of(api: Api, name: str) -> str:
    return str(api.get(f"{PODS}/{name}")["status"]["phase"])


def running(api: Api, names: Sequence[str]) -> bool:
    """Whether the containers of these pods run."""
    pods = [api.get(f"{PODS}/{name}")["status"] for name in names]
    return all(
        "running" in status["state"]
        for each in pods
        for status in each.get("containerStatuses") or [{"state": {}}]
    )
