"""The node agent on a real node: bad cards, new limits, use without limits, and its own death."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from clients.harness import PROGRAMS
from cluster import waiting
from cluster.api import Object
from cluster.conftest import StartWhole
from cluster.deployed import create_soon
from cluster.kubectl import hami
from cluster.limited_pods import (
    FILL,
    MIB,
    PROGRAM,
    Limited,
    command,
    install,
    run_in,
    running,
    shown,
)
from cluster.objects import NODES, PODS
from cluster.whole import WholeCluster
from support.running import Started

pytestmark = [pytest.mark.programs("controllers", "kubectl", "node"), pytest.mark.timeout(300)]

CARDS = 3
CARD_MIB = 40960
CONTEXT_MIB = 413
SLOTS = 32


@pytest.fixture(scope="module")
def cluster(whole_cluster: StartWhole) -> WholeCluster:
    """A cluster with hami and three cards."""
    cluster = whole_cluster(cards=",".join(["a100"] * CARDS))
    install(cluster)
    return cluster


def start(cluster: WholeCluster, pod: Limited, **spec: Any) -> str:
    """Start a pod that sleeps; the UUID of its card."""
    create_soon(cluster.control_plane, pod.pod("sleep infinity", **spec))
    annotations = running(cluster, pod.name)["metadata"]["annotations"]
    (card,) = json.loads(annotations["hami.io/assignment"])["containers"]["main"]
    return str(card["card"])


def delete(cluster: WholeCluster, name: str) -> None:
    cluster.api.delete(f"{PODS}/{name}")
    waiting.until(
        lambda: name not in {pod["metadata"]["name"] for pod in cluster.api.list(PODS)},
        f"pod {name} is deleted",
    )
    ledger = Path(f"/proc/{cluster.node.init_pid()}/root/var/lib/hami/ledger.json")
    waiting.until(lambda: f'"{name}"' not in ledger.read_text(), f"{name} is released")


def fills(cluster: WholeCluster, pod: str, limit_mib: int) -> None:
    report = json.loads(run_in(cluster, pod, FILL).splitlines()[-1])
    assert (report["total"], report["got"]) == (limit_mib * MIB, (limit_mib - CONTEXT_MIB) * MIB)


def cards(cluster: WholeCluster) -> dict[str, Any]:
    """The cards of the node by UUID, as the agent has published them."""
    node = cluster.api.get(f"{NODES}/{cluster.node.name}")
    found = json.loads(node["metadata"]["annotations"]["hami.io/cards"])["cards"]
    return {card["uuid"]: card for card in found}


def events(cluster: WholeCluster, reason: str) -> list[Object]:
    found = cluster.api.list("/api/v1/events")
    return [event for event in found if event["reason"] == reason]


def event(cluster: WholeCluster, reason: str, about: str) -> str:
    """The message of an event about an object of this name."""

    def look() -> str | None:
        for each in events(cluster, reason):
            if each["involvedObject"]["name"] == about:
                return str(each["message"])
        return None

    return waiting.until(look, f"an event {reason} about {about}")


def restart_agent(cluster: WholeCluster) -> None:
    """Delete the agent's pod, and wait until another one acts and has published the cards."""
    pods = "/api/v1/namespaces/hami-system/pods"

    def agent() -> Object | None:
        found = [each for each in cluster.api.list(pods) if "hami-node" in each["metadata"]["name"]]
        there = [each for each in found if "deletionTimestamp" not in each["metadata"]]
        return there[0] if there and len(found) == 1 else None

    before = waiting.until(agent, "one agent runs")["metadata"]["name"]
    node = f"{NODES}/{cluster.node.name}"
    cluster.api.delete(f"{pods}/{before}")
    waiting.until(lambda: (new := agent()) and new["metadata"]["name"] != before, "a new agent")
    cluster.rolled_out("daemonset/hami-node")
    # What is there now may be the earlier agent's.
    cluster.api.patch(node, {"metadata": {"annotations": {"hami.io/cards": "written anew"}}})

    def is_published() -> bool:
        annotations = cluster.api.get(node)["metadata"]["annotations"]
        return bool(annotations["hami.io/cards"] != "written anew")

    waiting.until(is_published, "the cards are published")


def until(look: Any, what: str) -> float:
    """Wait; the seconds that it took, for people."""
    begin = time.monotonic()
    waiting.until(look, what)
    return time.monotonic() - begin


def test_a_lost_card_gets_no_pods_until_it_is_back(cluster: WholeCluster) -> None:
    """Takes 20 s for the cluster, which the tests of this file share."""
    before = shown(cluster)
    lost = cluster.gpu.uuids()[1]
    cluster.gpu.control({"command": "lose", "card": 1})
    took = until(lambda: not cards(cluster)[lost].get("healthy", True), "the card is unhealthy")
    until(lambda: shown(cluster)["nvidia.com/gpu"] == 2 * SLOTS, "its devices are unhealthy")
    until(lambda: shown(cluster)["nvidia.com/gpumem"] == 2 * CARD_MIB, "its memory is away")
    assert "lost" in event(cluster, "CardUnhealthy", cluster.node.name)
    restart_agent(cluster)
    assert cards(cluster)[lost]["healthy"] is False, "an agent that has never seen it knows it"
    cluster.gpu.control({"command": "restore", "card": 1})
    back = until(lambda: cards(cluster)[lost].get("healthy", True), "the card is healthy")
    until(lambda: shown(cluster) == before, "all is as before")
    print(f"unhealthy after {took:.1f} s, healthy after {back:.1f} s")


def test_memory_in_the_status_never_falls_below_what_is_allocated(cluster: WholeCluster) -> None:
    names = [f"big-{number}" for number in range(CARDS)]
    for name in names:
        start(cluster, Limited(name, 30000, 10))
    for number in range(CARDS):
        cluster.gpu.control({"command": "lose", "card": number})
    until(lambda: shown(cluster)["nvidia.com/gpu"] == 0, "no device is healthy")
    until(lambda: shown(cluster)["nvidia.com/gpumem"] == CARDS * 30000, "what is allocated")
    for number in range(CARDS):
        cluster.gpu.control({"command": "restore", "card": number})
    until(lambda: shown(cluster)["nvidia.com/gpumem"] == CARDS * CARD_MIB, "all cards are back")
    for name in names:
        assert running(cluster, name)["status"]["containerStatuses"][0]["restartCount"] == 0
        delete(cluster, name)


def resize(cluster: WholeCluster, pod: str, memory: str) -> subprocess.CompletedProcess[str]:
    there = ("--kubeconfig", cluster.control_plane.kubeconfig)
    return hami("set", "--pod", f"default/{pod}", "--gpumem", memory, *there)


def test_the_limits_of_a_running_pod_change(cluster: WholeCluster) -> None:
    pod = Limited("resized", 3000, 30)
    card = start(cluster, pod)
    fills(cluster, pod.name, 3000)
    done = resize(cluster, "resized", "6000MiB")
    assert done.returncode == 0, done.stderr
    fills(cluster, pod.name, 6000)
    assert event(cluster, "Resized", pod.name)
    # What does not fit is refused, and nothing changes.
    done = resize(cluster, "resized/main", "41000MiB")
    assert done.returncode == 1
    assert f"card {card} has 40960 MiB free, and 41000 are needed" in done.stderr
    fills(cluster, pod.name, 6000)
    done = resize(cluster, "resized", f"{card}=2GiB")
    assert done.returncode == 0, done.stderr
    fills(cluster, pod.name, 2048)
    # The scheduler follows: the rest of the card is free.
    rest = Limited("rest", CARD_MIB - 2048, 10)
    use = {"metadata": {"annotations": {"nvidia.com/use-gpuuuid": card}}}
    create_soon(cluster.control_plane, _merged(rest.pod("sleep infinity"), use))
    running(cluster, rest.name)
    delete(cluster, rest.name)
    delete(cluster, pod.name)


def _merged(pod: Object, more: Object) -> Object:
    return {**pod, "metadata": {**pod["metadata"], **more["metadata"]}}


def test_a_killed_agent_comes_back_and_running_pods_keep_their_limits(
    cluster: WholeCluster,
) -> None:
    """Takes some seconds: the kubelet restarts the agent after its own pause."""
    pod = Limited("survivor", 3000, 30)
    start(cluster, pod)
    for process in agents(cluster):
        os.kill(process, signal.SIGKILL)
    fills(cluster, pod.name, 3000)
    until(lambda: agents(cluster), "the agent runs again")
    cluster.rolled_out("daemonset/hami-node")
    fills(cluster, pod.name, 3000)
    late = Limited("late", 4000, 30)
    start(cluster, late)
    fills(cluster, late.name, 4000)
    assert running(cluster, pod.name)["status"]["containerStatuses"][0]["restartCount"] == 0
    delete(cluster, pod.name)
    delete(cluster, late.name)


def test_a_damaged_ledger_is_written_anew_from_the_kubelets_record(
    cluster: WholeCluster,
) -> None:
    """Takes some seconds: the kubelet restarts the agent after its own pause."""
    pod = Limited("kept", 3000, 30)
    start(cluster, pod)
    root = Path(f"/proc/{cluster.node.init_pid()}/root")
    ledger = root / "var/lib/hami/ledger.json"
    slots = sorted(path.name for path in (root / "run/hami/slices").iterdir())
    ledger.write_bytes(ledger.read_bytes()[:-20])
    for process in agents(cluster):
        os.kill(process, signal.SIGKILL)
    until(lambda: list(ledger.parent.glob("ledger.json.damaged-*")), "it was set aside")
    until(lambda: ledger.exists() and '"kept"' in ledger.read_text(), "the pod is in the new one")
    assert sorted(path.name for path in (root / "run/hami/slices").iterdir()) == slots
    assert event(cluster, "LedgerDamaged", cluster.node.name)
    cluster.rolled_out("daemonset/hami-node")
    done = resize(cluster, "kept", "5000MiB")
    assert done.returncode == 0, done.stderr
    fills(cluster, pod.name, 5000)
    delete(cluster, pod.name)


def agents(cluster: WholeCluster) -> list[int]:
    """The processes of the node's agents, as this namespace numbers them."""
    namespace = Path(f"/proc/{cluster.node.init_pid()}/ns/pid").stat().st_ino
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
                same = (process / "ns" / "pid").stat().st_ino == namespace
            except OSError:
                continue
            if same and b"node" in words and any(word.endswith(b"/hami") for word in words):
                found.append(int(process.name))
    return found


#: In a container: a copy of the loader that looks for another file than /etc/ld.so.preload.
LOADER = """
from pathlib import Path
loader = Path("/lib64/ld-linux-x86-64.so.2").read_bytes()
Path("/loader").write_bytes(loader.replace(b"/etc/ld.so.preload", b"/etc/ld.so.nothing"))
Path("/loader").chmod(0o755)
"""


def foreign_mib(cluster: WholeCluster) -> int:
    return sum(card.get("foreign_mib", 0) for card in cards(cluster).values())


def test_a_program_without_the_library_is_reported(cluster: WholeCluster) -> None:
    pod = Limited("bypasses", 3000, 30)
    start(cluster, pod)
    run_in(cluster, pod.name, ["python3", "-c", LOADER])
    hold = [*PROGRAM, "hold", "1024"]
    with Started(command(cluster, pod.name, "/loader", *hold), {}) as inside:
        inside.wait_for("holding")
        took = until(lambda: events(cluster, "BypassesLimits"), "it is reported")
        message = event(cluster, "BypassesLimits", pod.name)
        print(f"after {took:.1f} s: {message}")
        assert "/loader" in message
        event(cluster, "ExceedsLimits", pod.name)
        # It has all of the card. Nobody else may get what is beyond the pod's limit.
        until(lambda: foreign_mib(cluster) >= CARD_MIB - 3000 - 1024, "it counts")
    until(lambda: foreign_mib(cluster) == 0, "it has ended")
    delete(cluster, pod.name)


def first_process(cluster: WholeCluster, name: str) -> int:
    """The PID of a process of a pod's container."""
    uid = cluster.api.get(f"{PODS}/{name}")["metadata"]["uid"]
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_bytes()
            if uid in (process / "cgroup").read_text() and command.startswith(b"sleep"):
                return int(process.name)
    raise AssertionError(f"{name} has no process")


def test_limits_that_a_mount_covers_are_reported(cluster: WholeCluster) -> None:
    """The mount is made from outside, as a runtime does for a path through a link of the image."""
    pod, other = Limited("covers", 3000, 30), Limited("larger", 9000, 30)
    start(cluster, pod)
    start(cluster, other)
    page = f"/proc/{first_process(cluster, other.name)}/root/usr/local/hami/limits"
    mine = first_process(cluster, pod.name)
    Path(f"/proc/{mine}/root/tmp/limits").write_bytes(Path(page).read_bytes())
    bind = ["mount", "--bind", "/tmp/limits", "/usr/local/hami/limits"]  # noqa: S108
    subprocess.run(["nsenter", "--mount", "--target", str(mine), "--", *bind], check=True)
    # The other pod's page has another card perhaps; then CUDA is refused, which is safe.
    with Started(command(cluster, pod.name, *PROGRAM, "hold", "35000"), {}) as inside:
        inside.wait_for("holding")
        took = until(lambda: events(cluster, "CoversLimits"), "it is reported")
        print(f"after {took:.1f} s: {event(cluster, 'CoversLimits', pod.name)}")
    delete(cluster, pod.name)
    delete(cluster, other.name)


def test_a_process_outside_of_all_pods_is_reported(cluster: WholeCluster) -> None:
    enter = ["nsenter", "--mount", "--pid", "--target", str(cluster.node.init_pid()), "--"]
    program = [sys.executable, str(PROGRAMS / "with_cuda_bindings.py"), "hold", "1024"]
    with Started([*enter, *program], cluster.gpu.charging_env) as outside:
        outside.wait_for("holding")
        message = event(cluster, "ForeignProcess", cluster.node.name)
        assert "with_cuda_bindings" in message
        until(lambda: foreign_mib(cluster) >= CARD_MIB - 1024, "it counts")
    until(lambda: foreign_mib(cluster) == 0, "it has ended")


def test_a_pod_without_an_assignment_waits_until_it_is_deleted(cluster: WholeCluster) -> None:
    """As one that was created before the webhook was there, and bound by the default scheduler."""
    namespace = {"metadata": {"name": "ignored", "labels": {"hami.io/webhook": "ignore"}}}
    cluster.api.create("/api/v1/namespaces", namespace)
    pods = "/api/v1/namespaces/ignored/pods"
    template = Limited("stray", 1, 1).pod("sleep infinity", restartPolicy="Always")
    template["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    template["metadata"] = {"labels": {"app": "stray"}}
    replicas = {
        "metadata": {"name": "stray"},
        "spec": {"selector": {"matchLabels": {"app": "stray"}}, "template": template},
    }
    waiting.until(
        lambda: cluster.api.list("/api/v1/namespaces/ignored/serviceaccounts"), "its account exists"
    )
    cluster.api.create("/apis/apps/v1/namespaces/ignored/replicasets", replicas)
    (first,) = waiting.until(lambda: cluster.api.list(pods), "its pod exists")
    name = first["metadata"]["name"]
    message = event(cluster, "WaitingForCard", name)
    assert "no card was assigned to it" in message
    assert "delete the pod, so that its controller creates another one" in message
    state = cluster.api.get(f"{pods}/{name}")["status"]["containerStatuses"][0]["state"]
    assert state["waiting"]["reason"] in ("CreateContainerConfigError", "ContainerCreating")
    # From now on the webhook sees the pods.
    labels = {"metadata": {"labels": {"hami.io/webhook": None}}}
    cluster.api.patch("/api/v1/namespaces/ignored", labels)
    cluster.api.delete(f"{pods}/{name}")

    def runs() -> bool:
        return any(
            pod["metadata"]["name"] != name and pod["status"]["phase"] == "Running"
            for pod in cluster.api.list(pods)
        )

    waiting.until(runs, f"the pod of its controller runs\n{cluster.state()}")
    cluster.api.delete("/api/v1/namespaces/ignored")


def test_a_program_that_takes_a_card_without_requesting_one_is_reported(
    cluster: WholeCluster,
) -> None:
    """NVIDIA's runtime gives a container the cards that its environment names.

    The policy refuses that, but in namespaces with this label.
    """
    labels = {"hami.io/visible-devices": "allow"}
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": "sees-all", "labels": labels}})
    accounts = "/api/v1/namespaces/sees-all/serviceaccounts"
    waiting.until(lambda: cluster.api.list(accounts), "its account exists")
    uuid = cluster.gpu.uuids()[0]
    pod = Limited("takes", 1, 1).pod(f"sleep infinity | {' '.join(PROGRAM)} hold 1024")
    (inside,) = pod["spec"]["containers"]
    inside["resources"] = {}
    inside["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": uuid}]
    cluster.api.create("/api/v1/namespaces/sees-all/pods", pod)
    message = event(cluster, "UsesUnallocatedCard", "takes")
    assert uuid in message
    cluster.api.delete("/api/v1/namespaces/sees-all")
