"""Upgrades and rollbacks on a real kubelet, with programs that run through them.

The parts of the release before and of this one meet in each combination that a rolling update may
pass through, and a part is killed while it is replaced. Two programs run all the time, one that
holds memory and one that computes; a Job starts at each step. The stub's ledger is the oracle.
"""

import contextlib
import itertools
import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster import charts, images, releases, waiting
from cluster.api import Object
from cluster.conftest import StartWhole
from cluster.deployed import create_soon
from cluster.limited_pods import (
    COMPUTE,
    FILL,
    LABEL,
    MIB,
    PROGRAM,
    Limited,
    command,
    output,
    running,
)
from cluster.node_faults import RESTARTS
from cluster.objects import NODES, PODS
from cluster.releases import NEXT, TAG, Release
from cluster.whole import WholeCluster
from hami_py._native import VERSION
from support.running import Started

pytestmark = [
    pytest.mark.programs("controllers", "kubectl", "node", "helm"),
    pytest.mark.timeout(600),
]

SYSTEM = "/api/v1/namespaces/hami-system/pods"

JOBS = "/apis/batch/v1/namespaces/default/jobs"

HOLDER, WORKER = Limited("holder", 3000, 30), Limited("worker", 2000, 30)

#: The parts, with the containers that have our image.
PARTS = {
    "daemonset/hami-node": "node",
    "deployment/hami-webhook": "webhook",
    "deployment/hami-scheduler": "extender",
}

INSTALL = ("--namespace=hami-system", "--create-namespace", "--wait", "--timeout=5m")

#: The part that changes at each step, so that all eight combinations of old and new are passed.
STEPS = (2, 1, 2, 0, 2, 1, 2, 0)


@dataclass(frozen=True)
class Upgraded:
    """A cluster with the release before, and the programs that run in it all the time."""

    cluster: WholeCluster
    before: Release
    programs: Sequence[Started]

    def check(self) -> None:
        """No program has ended, and none has more than its limit."""
        for program in self.programs:
            assert Path(f"/proc/{program.pid}/fd/0").exists(), "a program has ended"
        for pod in (HOLDER, WORKER):
            assert 0 < peak_mib(self.cluster, pod.name) <= pod.memory_mib
        status = [self.cluster.api.get(f"{PODS}/{pod.name}")["status"] for pod in (HOLDER, WORKER)]
        assert [each["containerStatuses"][0]["restartCount"] for each in status] == [0, 0]


@pytest.fixture(scope="module")
def upgraded(
    whole_cluster: StartWhole, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Upgraded]:
    before = releases.before(tmp_path_factory.mktemp("release"))
    print(f"the release before is {before.name}")
    wanted = [*images.whole(), before.image]
    cluster = whole_cluster(cards="a100", wanted=wanted, kubelet_config=RESTARTS)
    cluster.api.patch(f"{NODES}/{cluster.node.name}", {"metadata": {"labels": LABEL}})
    tag = f"--set=image.tag={TAG}"
    charts.run(cluster.control_plane, "install", "hami", before.chart, *INSTALL, tag)
    for pod in (HOLDER, WORKER):
        create_soon(cluster.control_plane, pod.pod("sleep infinity"))
        running(cluster, pod.name)
    holds = command(cluster, HOLDER.name, *PROGRAM, "hold", "256")
    computes = command(cluster, WORKER.name, *COMPUTE, "3600")
    with Started(holds, {}) as holder, Started(computes, {}) as worker:
        holder.wait_for("holding")
        worker.wait_for("ready")
        worker.tell("go")
        yield Upgraded(cluster, before, (holder, worker))


def peak_mib(cluster: WholeCluster, group: str) -> float:
    """The most memory that a group of processes has held, by the ledger."""
    (card,) = cluster.gpu.ledger()["cards"]
    return float(card["groups"][group]["occupied"]["peak"] / MIB)


def start_job(cluster: WholeCluster, name: str) -> Limited:
    """A Job whose pod fills its memory; a pod that is not admitted is replaced."""
    limited = Limited(name, 500 + len(name), 1)
    pod = limited.pod(f"exec {' '.join(FILL)}")
    template = {"metadata": {"labels": {"job": name}}, "spec": pod["spec"]}
    job: Object = {"metadata": {"name": name}, "spec": {"template": template, "backoffLimit": 6}}
    create_soon(cluster.control_plane, job, JOBS)
    return limited


def check_job(cluster: WholeCluster, limited: Limited) -> None:
    """It completes under its limit."""
    path = f"{JOBS}/{limited.name}"
    waiting.until(
        lambda: cluster.api.get(path)["status"].get("succeeded"), f"{limited.name} is done", 120
    )
    pods = cluster.api.list(f"{PODS}?labelSelector=job={limited.name}")
    (done,) = (each for each in pods if each["status"]["phase"] == "Succeeded")
    report = json.loads(output(cluster, done["metadata"]["name"]).splitlines()[-1])
    assert report["total"] == limited.memory_mib * MIB
    assert peak_mib(cluster, limited.name) <= limited.memory_mib


def of_part(cluster: WholeCluster, part: str) -> list[Object]:
    """The pods of a part."""
    selector = f"labelSelector=app.kubernetes.io/name={part.partition('/')[2]}"
    return cluster.api.list(f"{SYSTEM}?{selector}")


def kill(cluster: WholeCluster, part: str) -> None:
    """Kill the processes of all pods of a part, without a warning."""
    for pod in of_part(cluster, part):
        for process in cluster.processes(pod["metadata"]["uid"]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def test_an_upgrade_and_a_rollback_break_no_program(upgraded: Upgraded) -> None:
    """By Helm, with Jobs that start all the time, and each part killed once. Takes a minute."""
    cluster = upgraded.cluster
    upgrade = ("upgrade", "hami", charts.CHART, *INSTALL, f"--set=image.tag={VERSION}")
    rollback = ("rollback", "hami", "--namespace=hami-system", "--wait", "--timeout=5m")
    for name, arguments in (("there", upgrade), ("back", rollback)):
        jobs = []
        with ThreadPoolExecutor() as threads:
            helm = threads.submit(charts.run, cluster.control_plane, *arguments)
            for number in itertools.count():
                jobs.append(start_job(cluster, f"{name}-{number}"))
                if number < len(PARTS):
                    kill(cluster, [*PARTS][number])
                upgraded.check()
                if helm.done() and number >= len(PARTS):
                    break
                time.sleep(1.0)
            helm.result()
        for job in jobs:
            check_job(cluster, job)
        running_images = {
            status["image"].rpartition(":")[2]
            for part, container in PARTS.items()
            for pod in of_part(cluster, part)
            for status in pod["status"].get("containerStatuses", ())
            if status["name"] == container
        }
        assert running_images == {VERSION if name == "there" else TAG}
    libraries = {path.parent.name for path in _mapped_libraries(cluster)}
    assert len(libraries) == 1, "running pods keep the library that they started with"


@pytest.mark.tier("torture")
def test_the_parts_of_both_releases_work_together(upgraded: Upgraded) -> None:
    """Takes two minutes: eight rollouts of a part, which is killed each time.

    After the test of Helm, which would refuse to replace an image that somebody else has set.
    """
    cluster = upgraded.cluster
    is_new, jobs = [False] * len(PARTS), []
    for number, index in enumerate(STEPS):
        part, container = [*PARTS.items()][index]
        is_new[index] = not is_new[index]
        image = f"docker.io/library/hami-py:{VERSION if is_new[index] else TAG}"
        set_image = ("set", "image", part, f"{container}={image}", "--namespace=hami-system")
        cluster.kubectl(*set_image)
        kill(cluster, part)
        jobs.append(start_job(cluster, f"step-{number}"))
        cluster.rolled_out(part)
        upgraded.check()
        check_job(cluster, jobs[-1])
    assert is_new == [False] * len(PARTS)


@pytest.mark.tier("torture")
def test_two_formats_of_a_slices_files_live_together(upgraded: Upgraded) -> None:
    """Takes some minutes, and five more when the next format is built. It has to be the last one.

    Programs of the format before keep their limits. A container of it that has ended does not start
    again beside an agent of another format, and says that its pod has to be deleted.
    """
    cluster = upgraded.cluster
    other = releases.next_format()
    with tempfile.NamedTemporaryFile(suffix=".tar") as archive:
        images.write([other.image], archive)
        archive.flush()
        cluster.node.ctr("images", "import", archive.name)
    restarts = Limited("restarts", 1000, 1)
    for tag in (NEXT, TAG):
        pod = restarts.pod("while [ ! -e /ended ]; do sleep 0.1; done", restartPolicy="Always")
        create_soon(cluster.control_plane, pod)
        running(cluster, restarts.name)
        for part, container in PARTS.items():
            image = f"{container}=docker.io/library/hami-py:{tag}"
            cluster.kubectl("set", "image", part, image, "--namespace=hami-system")
            cluster.rolled_out(part)
        check_job(cluster, start_job(cluster, f"format-{tag}"))
        upgraded.check()
        cluster.kubectl("exec", restarts.name, "--", "touch", "/ended")
        waiting.until(lambda: _is_told_to_delete(cluster, restarts.name), "the event is there", 120)
        cluster.api.delete(f"{PODS}/{restarts.name}")
        waiting.gone(cluster.api, f"{PODS}/{restarts.name}")


def _is_told_to_delete(cluster: WholeCluster, pod: str) -> bool:
    text = "delete the pod, so that it gets another one"
    events = cluster.api.list("/api/v1/namespaces/default/events")
    return any(each["involvedObject"]["name"] == pod and text in each["message"] for each in events)


def _mapped_libraries(cluster: WholeCluster) -> Iterator[Path]:
    """The installed libraries that running containers have, by their mounts."""
    for pod in (HOLDER, WORKER):
        uid = cluster.api.get(f"{PODS}/{pod.name}")["metadata"]["uid"]
        for process in cluster.processes(uid):
            for line in Path(f"/proc/{process}/mountinfo").read_text().splitlines():
                source, target = line.split()[3:5]
                if target == "/usr/local/hami/libvgpu.so":
                    yield Path(source)
