"""Pods under limits on a real node: everything is deployed by deploy/, and runs as pods there.

The image contains nothing of hami. The stub's ledger is the oracle.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from cluster import images, objects, toolkit
from cluster.conftest import StartWhole
from cluster.deployed import create_soon
from cluster.kubectl import kubectl
from cluster.limited_pods import (
    FILL,
    MIB,
    PROGRAM,
    Limited,
    compute,
    install,
    run_in,
    running,
)
from cluster.node_gpu import MPS
from cluster.objects import PODS
from cluster.whole import WholeCluster

pytestmark = [pytest.mark.programs("controllers", "kubectl", "node"), pytest.mark.timeout(300)]

ONE, TWO = Limited("one", 3000, 30), Limited("two", 4096, 50)

SOFT = Limited("soft", 1024, 10)

#: What the driver takes for a context on an A100, by the stub's profile.
CONTEXT_MIB = 413

#: Points above its share that a pod may have, and the part of it that a busy machine still leaves.
#: How exact a share is, tests/share measures on a virtual clock.
MORE, LEAST = 5, 0.5

#: By this, the stub driver finds its cards.
KEPT = "STUB_GPU_SOCKET=$STUB_GPU_SOCKET STUB_GPU_DEVICES=$STUB_GPU_DEVICES"

#: As `su` does; the image has none.
OTHER_USER = "import os, sys; os.setgid(7); os.setuid(7); os.execvp(sys.argv[1], sys.argv[1:])"

#: Whether the driver is a client of an MPS daemon.
ASKS = """
from cuda.bindings import driver as cuda
cuda.cuInit(0)
print(cuda.cuDeviceGetAttribute(cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 0)[1])
"""

FINDS_PIPES = f"""
import os
os.makedirs("{MPS}")
open("{MPS}/control", "w").close()
os.environ.pop("CUDA_MPS_PIPE_DIRECTORY")
"""

#: docs/install.md has operators make it.
SETTING = "accept-nvidia-visible-devices-envvar-when-unprivileged=false"

#: In the container of the agent.
DOCTOR = (
    "--namespace=hami-system",
    "exec",
    "daemonset/hami-node",
    "--",
    "hami",
    "doctor",
    "--node",
)

ATTACKS = (Path(__file__).parent / "attacks.py").read_text()


@pytest.fixture(scope="module")
def cluster(whole_cluster: StartWhole) -> WholeCluster:
    """A cluster with hami and one card, on which both pods run."""
    cluster = whole_cluster(cards="a100")
    install(cluster)
    for pod in (ONE, TWO):
        create_soon(cluster.control_plane, pod.pod("sleep infinity"))
    for pod in (ONE, TWO):
        running(cluster, pod.name)
    return cluster


@pytest.fixture(autouse=True)
def _peaks(cluster: WholeCluster) -> Iterator[None]:
    cluster.gpu.control({"command": "reset-peaks"})
    yield


def fills(cluster: WholeCluster, pod: Limited, *prefix: str) -> None:
    """The program sees the limit, gets all of it but the driver's memory, and no more."""
    report = json.loads(run_in(cluster, pod.name, [*prefix, *FILL]).splitlines()[-1])
    assert report["total"] == pod.memory_mib * MIB
    assert "CUDA_ERROR_OUT_OF_MEMORY" in report["error"]
    assert report["got"] == (pod.memory_mib - CONTEXT_MIB) * MIB
    # With the context, the pod holds exactly its limit.
    assert cluster.gpu.ledger()["cards"][0]["occupied"]["peak"] == pod.memory_mib * MIB


@pytest.mark.parametrize("pod", [ONE, TWO], ids=lambda pod: pod.name)
def test_a_pod_sees_and_gets_its_memory(cluster: WholeCluster, pod: Limited) -> None:
    """Takes 20 s for the cluster, which the tests of this file share."""
    fills(cluster, pod)


@pytest.mark.parametrize(
    "prefix",
    [
        ("sh", "-c", f'exec env -i {KEPT} "$@"', "sh"),
        ("sh", "-c", 'unset LD_PRELOAD; exec "$@"', "sh"),
        ("sh", "-c", 'LD_PRELOAD= exec "$@"', "sh"),
        ("python3", "-c", OTHER_USER),
    ],
    ids=["empty-environment", "no-preload", "empty-preload", "another-user"],
)
def test_a_limit_needs_no_environment(cluster: WholeCluster, prefix: tuple[str, ...]) -> None:
    fills(cluster, ONE, *prefix)


def test_a_limited_pod_is_no_client_of_the_nodes_mps_daemon(cluster: WholeCluster) -> None:
    """NVIDIA's toolkit mounts the pipes of a daemon into each container, if they are there."""
    assert MPS in (cluster.node.cdi / "nvidia.json").read_text()
    assert run_in(cluster, ONE.name, (PROGRAM[0], "-c", ASKS)).strip() == "0"
    # The driver takes pipes that are there.
    assert run_in(cluster, ONE.name, (PROGRAM[0], "-c", FINDS_PIPES + ASKS)).strip() == "1"


@pytest.mark.alone
def test_both_pods_on_a_card_keep_their_shares(cluster: WholeCluster) -> None:
    """Takes 6 s of computing: a share is a mean."""
    percent = compute(cluster, [ONE.name, TWO.name], 6)
    print(percent)
    for pod in (ONE, TWO):
        assert LEAST * pod.cores <= percent[pod.name] <= pod.cores + MORE


def test_a_pod_that_is_alone_keeps_its_share(cluster: WholeCluster) -> None:
    percent = compute(cluster, [ONE.name], 3)
    print(percent)
    assert LEAST * ONE.cores <= percent[ONE.name] <= ONE.cores + MORE


def test_a_soft_pod_that_is_alone_gets_the_idle_time(cluster: WholeCluster) -> None:
    pod = SOFT.pod("sleep infinity")
    pod["metadata"]["annotations"] = {"hami.io/share-mode": "soft"}
    create_soon(cluster.control_plane, pod)
    running(cluster, SOFT.name)
    percent = compute(cluster, [SOFT.name], 3)
    print(percent)
    assert percent[SOFT.name] >= LEAST * 100


@pytest.mark.parametrize(
    "attack", ["open", "mmap", "rename", "mount", "truncate", "environment", "account"]
)
def test_the_root_of_a_container_cannot_change_its_limits(
    cluster: WholeCluster, attack: str
) -> None:
    """`attacks.py` tries in the container, and prints what succeeded."""
    assert run_in(cluster, ONE.name, ["id", "-u"]).strip() == "0"
    said = run_in(cluster, ONE.name, ["python3", "-c", ATTACKS, attack])
    assert said == "", said
    fills(cluster, ONE)


def test_a_higher_limit_in_the_environment_changes_nothing(cluster: WholeCluster) -> None:
    fills(cluster, ONE, "env", "CUDA_DEVICE_MEMORY_LIMIT=30000m", "CUDA_DEVICE_SM_LIMIT=100")


def test_a_lower_limit_in_the_environment_counts(cluster: WholeCluster) -> None:
    program = ["env", "CUDA_DEVICE_MEMORY_LIMIT=1000m", *PROGRAM, "fill", "256"]
    report = json.loads(run_in(cluster, ONE.name, program).splitlines()[-1])
    assert report["total"] == 1000 * MIB


def test_a_pod_asks_the_driver_for_no_memory(cluster: WholeCluster) -> None:
    """NVIDIA's toolkit would guarantee it what it asks, or with cgroup v1 not start it."""
    pod = Limited("asks", 1024, 5)
    made = pod.pod("sleep infinity")
    for name in ("NVIDIA_GPU_MEMORY_REQUEST", "NVIDIA_GPU_MEMORY_LIMIT"):
        made["spec"]["containers"][0]["env"].append({"name": name, "value": "30000"})
    create_soon(cluster.control_plane, made)
    running(cluster, pod.name)
    fills(cluster, pod)


def test_an_unlimited_pod_gets_no_card(cluster: WholeCluster) -> None:
    """NVIDIA's runtime adds all cards for some images, until the operator makes the setting."""
    named = {"cdi.k8s.io/mine": f"{toolkit.KIND}=all"}
    plain = {"plain": images.CLIENT, "visible": images.VISIBLE, "legacy": images.LEGACY}
    every = {"nvidiactl", "nvidia0"}
    for setting, added in (("", every), (SETTING, set())):
        if setting:
            toolkit.change(cluster.node, setting)
        expected = {"plain": set(), "visible": added, "legacy": added}
        assert {name: devices(cluster, name, plain[name], named) for name in plain} == expected
        done = kubectl(cluster.control_plane, *DOCTOR)
        (said,) = (each for each in done.stdout.splitlines() if "container toolkit" in each)
        assert said.startswith("ok" if setting else "FAIL"), said
    # The others have what they need.
    cluster.kubectl("--namespace=hami-system", "rollout", "restart", "daemonset/hami-node")
    cluster.rolled_out("daemonset/hami-node")
    again = Limited("again", 1024, 5)
    create_soon(cluster.control_plane, again.pod("sleep infinity"))
    running(cluster, again.name)
    for pod in (ONE, again):
        cluster.gpu.control({"command": "reset-peaks"})
        fills(cluster, pod)


def devices(
    cluster: WholeCluster, name: str, image: str, annotations: Mapping[str, str]
) -> set[str]:
    """The device nodes of cards in a container that requests none."""
    program = {**objects.container(), "image": image, "imagePullPolicy": "Never"}
    program["command"] = ["sleep", "infinity"]
    pod = objects.pod(name, containers=[program], metadata={"annotations": dict(annotations)})
    uid = create_soon(cluster.control_plane, pod)["metadata"]["uid"]
    running(cluster, name)
    # The sandbox and the container: both sleep.
    found = {
        file.name
        for process in Path("/proc").glob("[0-9]*")
        if uid in _cgroup(process)
        for file in (process / "root" / "dev").glob("nvidia*")
    }
    cluster.api.delete(f"{PODS}/{name}", grace_seconds=0)
    return found


def _cgroup(process: Path) -> str:
    with contextlib.suppress(OSError):
        return (process / "cgroup").read_text()
    return ""
