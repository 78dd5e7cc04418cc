"""Pods under limits on a real node: everything is deployed by deploy/, and runs as pods there.

The image contains nothing of hami. The stub's ledger is the oracle.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.conftest import StartWhole
from cluster.deployed import create_soon
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
from cluster.whole import WholeCluster

pytestmark = [pytest.mark.programs("controllers", "kubectl", "node"), pytest.mark.timeout(300)]

ONE, TWO = Limited("one", 3000, 30), Limited("two", 4096, 50)

SOFT = Limited("soft", 1024, 10)

#: What the driver takes for a context on an A100, by the stub's profile.
CONTEXT_MIB = 413

#: Points that a pod may have beside its share, when the machine is busy.
MORE, LESS = 5, 10

#: By this, the stub driver finds its cards.
KEPT = "STUB_GPU_SOCKET=$STUB_GPU_SOCKET STUB_GPU_DEVICES=$STUB_GPU_DEVICES"

#: As `su` does; the image has none.
OTHER_USER = "import os, sys; os.setgid(7); os.setuid(7); os.execvp(sys.argv[1], sys.argv[1:])"

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


def test_both_pods_on_a_card_keep_their_shares(cluster: WholeCluster) -> None:
    """Takes 6 s of computing: a share is a mean."""
    percent = compute(cluster, [ONE.name, TWO.name], 6)
    print(percent)
    for pod in (ONE, TWO):
        assert pod.cores - LESS <= percent[pod.name] <= pod.cores + MORE


def test_a_pod_that_is_alone_keeps_its_share(cluster: WholeCluster) -> None:
    percent = compute(cluster, [ONE.name], 3)
    print(percent)
    assert ONE.cores - LESS <= percent[ONE.name] <= ONE.cores + MORE


def test_a_soft_pod_that_is_alone_gets_the_idle_time(cluster: WholeCluster) -> None:
    pod = SOFT.pod("sleep infinity")
    pod["metadata"]["annotations"] = {"hami.io/share-mode": "soft"}
    create_soon(cluster.control_plane, pod)
    running(cluster, SOFT.name)
    percent = compute(cluster, [SOFT.name], 3)
    print(percent)
    assert percent[SOFT.name] >= 100 - LESS


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
