"""Pods whose memory the driver limits (level kernel), on a real kubelet and containerd.

What the stub's ledger says is the oracle: it charges each process by its cgroup.
"""

import json
import random
import re
from collections.abc import Iterator
from functools import partial

import pytest

from cluster import waiting
from cluster.conftest import StartWhole
from cluster.deployed import create_soon
from cluster.gpu_pods import phase
from cluster.interrupted_starts import FAULTS, Fault, Round
from cluster.kernel_pods import (
    AGENT,
    MERGE,
    STATIC,
    Limit,
    by_driver,
    by_pages,
    cgroup_of,
    gpu,
    install_kernel_limits,
    static,
)
from cluster.kubectl import hami, kubectl
from cluster.limited_pods import FILL, MIB, PROGRAM, Limited, output, run_in, running
from cluster.node_faults import RESTARTS
from cluster.node_remains import INTERRUPTED, check_nothing_remains
from cluster.objects import NODES, PODS
from cluster.whole import WholeCluster
from support.tiers import amount

pytestmark = [pytest.mark.programs("controllers", "kubectl", "node"), pytest.mark.timeout(300)]

ONE = Limited("one", 3000, 30)

SYSTEM = "/api/v1/namespaces/hami-system"

#: By this, the stub driver finds its cards.
KEPT = (
    "STUB_GPU_SOCKET=$STUB_GPU_SOCKET STUB_GPU_DEVICES=$STUB_GPU_DEVICES "
    "STUB_GPU_GROUP=$STUB_GPU_GROUP"
)

#: A dynamic linker that reads another file than /etc/ld.so.preload: no program loads our library.
OTHER_LINKER = """
import os, pathlib, sys
linker = pathlib.Path("/lib64/ld-linux-x86-64.so.2").read_bytes()
assert b"/etc/ld.so.preload" in linker
other = pathlib.Path("/tmp/ld.so")
other.write_bytes(linker.replace(b"/etc/ld.so.preload", b"/etc/ld.so.nothing"))
other.chmod(0o755)
os.execv(other, [str(other), *sys.argv[1:]])
"""

PROGRAMS = {
    "usual": FILL,
    "empty-environment": ("sh", "-c", f'exec env -i {KEPT} "$@"', "sh", *FILL),
    "without-the-library": (PROGRAM[0], "-c", OTHER_LINKER, *FILL),
    "static": (STATIC, "once"),
}

KERNEL = "memory is enforced by kernel and time by lease, because the node offers nothing stronger"

NOT_LIMITED = "the container does not start, because the pod accepts no less than kernel"


@pytest.fixture(scope="module")
def cluster(whole_cluster: StartWhole) -> WholeCluster:
    """A cluster whose node has one card and the back end dmem, and one pod."""
    cluster = whole_cluster(gpu=gpu, kubelet_config=RESTARTS)
    install_kernel_limits(cluster)
    create_soon(cluster.control_plane, ONE.pod("sleep infinity"))
    running(cluster, ONE.name)
    return cluster


@pytest.fixture(autouse=True)
def _peaks(cluster: WholeCluster) -> Iterator[None]:
    cluster.gpu.control({"command": "reset-peaks"})
    yield


def peak_mib(cluster: WholeCluster, program: tuple[str, ...], pod: str = ONE.name) -> float:
    """The most memory that a pod held while it ran a program, by the ledger."""
    run_in(cluster, pod, program)
    groups = cluster.gpu.ledger()["cards"][0]["groups"]
    return float(groups[pod]["occupied"]["peak"] / MIB)


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_stops_at_the_limit(cluster: WholeCluster, program: str) -> None:
    """Takes 25 s for the cluster, which the tests of this file share."""
    before = cluster.gpu.ledger()["cards"][0]["refused"]
    assert peak_mib(cluster, PROGRAMS[program]) == ONE.memory_mib
    refused = cluster.gpu.ledger()["cards"][0]["refused"] - before
    # The library asks the driver for no more than the limit.
    assert (refused > 0) == (program in ("without-the-library", "static"))


def test_the_level_is_told_everywhere(cluster: WholeCluster) -> None:
    assert told(cluster, ONE.name, f"container main: {KERNEL}")
    (agent,) = cluster.api.list(f"{SYSTEM}/pods?labelSelector=app.kubernetes.io/name=hami-node")
    page = cluster.api.text(f"{SYSTEM}/pods/{agent['metadata']['name']}:9382/proxy/metrics")
    (line,) = re.findall(r"^hami_container_enforcement\{.*$", page, re.M)
    assert f'pod="{ONE.name}"' in line and 'level="kernel"' in line
    assert levels(cluster) == ["kernel"]


def told(cluster: WholeCluster, pod: str, text: str) -> bool:
    """Whether an event of a pod has this text."""
    return text in kubectl(cluster.control_plane, "events", "--for", f"pod/{pod}").stdout


def levels(cluster: WholeCluster) -> list[str]:
    """What the node offers for each of its cards."""
    node = cluster.api.get(f"{NODES}/{cluster.node.name}")
    return [
        card["level"]
        for card in json.loads(node["metadata"]["annotations"]["hami.io/cards"])["cards"]
    ]


def test_a_resize_is_in_the_page_and_in_the_drivers_limit(cluster: WholeCluster) -> None:
    cgroup = cgroup_of(cluster.node, running(cluster, ONE.name))
    for mib in (2000, 4000, ONE.memory_mib):
        there = ("--kubeconfig", cluster.control_plane.kubeconfig)
        done = hami("set", "--pod", f"default/{ONE.name}", "--gpumem", f"{mib}MiB", *there)
        assert done.returncode == 0, done.stderr
        wanted = {cgroup: Limit(0, mib * MIB)}
        assert by_driver(cluster.gpu) == wanted == by_pages(cluster.node, cluster.gpu)
        cluster.gpu.control({"command": "reset-peaks"})
        assert peak_mib(cluster, PROGRAMS["static"]) == mib


def test_a_container_that_the_driver_does_not_limit_does_not_start(cluster: WholeCluster) -> None:
    """Takes 15 s: the agent waits for a hanging driver for five."""
    hangs = {"command": "slow", "symbol": "nvmlDeviceSetMemoryLimits_v1", "us": 600_000_000}
    cluster.gpu.control(hangs)
    fails = static("fails", 1000)
    fails["spec"]["restartPolicy"] = "Never"
    for pod in (static("retried", 1000), fails):
        create_soon(cluster.control_plane, pod)
    status = phase(cluster.control_plane, "fails", "Failed")["status"]["containerStatuses"][0]
    assert status["state"]["terminated"]["reason"] == "StartError"
    for name in ("fails", "retried"):
        waiting.until(partial(told, cluster, name, NOT_LIMITED), f"an event about {name}")
    assert output(cluster, "fails") == output(cluster, "retried") == ""
    cluster.gpu.control({**hangs, "us": 0})
    cgroup = cgroup_of(cluster.node, running(cluster, "retried"))
    assert by_driver(cluster.gpu)[cgroup] == Limit(0, 1000 * MIB)
    for name in ("fails", "retried"):
        cluster.api.delete(f"{PODS}/{name}")
        waiting.gone(cluster.api, f"{PODS}/{name}")


@pytest.mark.timeout(3600)
def test_starts_have_their_limits_although_something_is_killed(cluster: WholeCluster) -> None:
    """Takes 12 s for five starts, with two of the faults: of 200 in torture eight minutes."""
    dice, starts, faults = random.Random(0), 0, list[Fault]()  # noqa: S311
    while starts < amount("interrupted starts"):
        if not faults:
            faults = dice.sample(FAULTS, len(FAULTS))
        starts += Round(cluster, dice, starts).run([faults.pop(), faults.pop()])
        print(f"{starts} starts", flush=True)


def set_kernel_limits(cluster: WholeCluster, value: str) -> None:
    """Let the node's agent have this setting."""
    text = json.dumps({"schedulers": ["hami-scheduler"], "kernel_limits": value})
    name = f"kernel-{value}"
    made = {"metadata": {"name": name}, "data": {"settings.yaml": text}}
    cluster.api.create(f"{SYSTEM}/configmaps", made)
    volume = {"name": "settings", "configMap": {"name": name}}
    patch = {"spec": {"template": {"spec": {"volumes": [volume]}}}}
    cluster.api.patch(AGENT, patch, MERGE)
    cluster.rolled_out("daemonset/hami-node")


def test_without_the_setting_only_the_library_limits(cluster: WholeCluster) -> None:
    """As on each node whose driver is older: a static program has the whole card there."""
    set_kernel_limits(cluster, "off")
    waiting.until(lambda: levels(cluster) == ["preload"], "the agent publishes it")
    loose = Limited("loose", 2000, 10)
    create_soon(cluster.control_plane, loose.pod("sleep infinity"))
    running(cluster, loose.name)
    assert peak_mib(cluster, PROGRAMS["usual"], loose.name) == loose.memory_mib
    assert peak_mib(cluster, PROGRAMS["static"], loose.name) > 10 * loose.memory_mib
    # What runs keeps its level.
    cluster.gpu.control({"command": "reset-peaks"})
    assert peak_mib(cluster, PROGRAMS["static"]) == ONE.memory_mib
    strict = Limited("strict", 2000, 10).pod("sleep infinity")
    strict["metadata"]["annotations"] = {"hami.io/isolation": "kernel"}
    create_soon(cluster.control_plane, strict)
    waiting.unschedulable(cluster.api, "strict", "its cards have weaker isolation than requested")
    there = ("--kubeconfig", cluster.control_plane.kubeconfig)
    said = hami("explain", "pod", "strict", "--all", *there).stdout
    assert "has too weak isolation (kernel requested, offered preload)" in said


def test_nothing_is_left_of_the_pods(cluster: WholeCluster) -> None:
    """Takes 20 s: the kubelet and the agent remove some things late."""
    cluster.api.delete_all(PODS)
    # A containerd that is killed while it creates a container leaves its snapshot, and while it
    # creates a sandbox the network namespace.
    check_nothing_remains(cluster, (*INTERRUPTED, "snapshot", "network namespaces"))
    assert by_driver(cluster.gpu) == {}
