"""Pods with claims of others start and end while agent, kubelet and containerd are killed.

No program of theirs ever runs without its limits: a thread looks at the mounts of all processes
from outside. All Jobs complete, and nothing is left of them.
"""

import random
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pytest

from cluster import card_owners, claimed_pods, claims, crowd, waiting
from cluster.api import Object
from cluster.card_owners import MIB, Container
from cluster.claimed_pods import uses
from cluster.claims import CLAIMS, ClaimsCluster
from cluster.claims_driver import NAME, RESOURCES
from cluster.conftest import StartWhole
from cluster.crowd import JOBS
from cluster.interrupted_starts import kill_agent, kill_containerd
from cluster.node_faults import KUBELET, RESTARTS
from cluster.node_remains import INTERRUPTED, check_nothing_remains
from cluster.objects import PODS
from cluster.whole import WholeCluster

pytestmark = [
    pytest.mark.programs("controllers", "kubectl", "node"),
    pytest.mark.tier("torture"),
    pytest.mark.timeout(1800),
]

TEMPLATES = f"{RESOURCES}/namespaces/default/resourceclaimtemplates"

#: The driver's class as an extended resource: one is a whole card.
EXTENDED = f"deviceclass.resource.kubernetes.io/{NAME}"

#: Takes all memory, and ends a moment later. Some share a claim: they do not take all.
FILL, IDLE = "/programs/tenant once; sleep 3", "timeout 5 /programs/tenant idle || true"

#: Pods of a Job: few, because a Job waits longer after each of its pods that has failed.
OF_A_JOB = 2

#: Kills of each of the three, and the most seconds from one kill to the next.
KILLS, APART_S = 5, 6.0

#: Seconds until all Jobs are complete. A claim that could not be prepared is retried after 90 s.
DEADLINE = 900.0

#: Mounts of each container with limits.
MOUNTS = {f"/usr/local/hami{name}" for name in ("", "/limits", "/account")} | {"/etc/ld.so.preload"}


@dataclass(frozen=True)
class Kind:
    """Some pods: how many, and by container the MiB that it fills.

    None = it does not fill all. A container with a whole card has no amount.
    """

    name: str
    count: int
    spec: Object
    amounts: dict[str, int | None]


def kinds() -> tuple[Kind, ...]:
    """Together 148 GiB of eight cards of 40 GiB, and four whole ones."""
    part = [uses("a", FILL, ("gpu", "a")), uses("b", FILL, ("gpu", "b"))]
    init, main = uses("init", FILL, ("gpu", None)), uses("main", FILL, ("gpu", None))
    whole = uses("main", FILL)
    whole["resources"] = {"limits": {EXTENDED: "1"}}
    return (
        Kind("own", 40, _pod([main], _template("one")), {"main": 1024}),
        *(
            Kind(
                f"shared-{number}",
                5,
                _pod(
                    [uses("main", IDLE, ("gpu", None))],
                    [{"name": "gpu", "resourceClaimName": f"shared-{number}"}],
                ),
                {"main": None},
            )
            for number in range(4)
        ),
        Kind("part", 20, _pod(part, _template("parts")), {"a": 1024, "b": 2048}),
        Kind(
            "init",
            16,
            _pod([main], _template("two"), initContainers=[init]),
            {"init": 2048, "main": 2048},
        ),
        Kind("whole", 4, _pod([whole], []), {}),
    )


def _template(name: str) -> list[Object]:
    return [{"name": "gpu", "resourceClaimTemplateName": name}]


def _pod(containers: Sequence[Object], used: list[Object], **more: object) -> Object:
    """The spec of a pod with these claims."""
    # The kubelet would leave a pod that never restarts Pending, if its sandbox ends between the
    # creation and the start of its container.
    made = claims.pod("of-a-job", containers, [], restartPolicy="OnFailure", **more)
    spec: Object = {**made["spec"], "resourceClaims": used}
    return spec


def _jobs(kinds: Sequence[Kind]) -> Iterator[Object]:
    for kind in kinds:
        for first in range(0, kind.count, OF_A_JOB):
            pods = min(OF_A_JOB, kind.count - first)
            metadata = {"labels": {"kind": kind.name}}
            yield {
                "metadata": {"name": f"{kind.name}-of-{first}"},
                "spec": {
                    "parallelism": pods,
                    "completions": pods,
                    "backoffLimit": 1000,
                    "template": {"metadata": metadata, "spec": kind.spec},
                },
            }


@pytest.fixture(scope="module")
def cluster(
    whole_cluster: StartWhole, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClaimsCluster]:
    """A cluster with the driver and hami, and eight cards."""
    config = {**crowd.KUBELET, **RESTARTS}
    whole = whole_cluster(cards=",".join(["a100"] * 8), kubelet_config=config)
    folder = tmp_path_factory.mktemp("driver")
    cluster = claimed_pods.install(whole, folder)
    yield cluster
    cluster.driver.server.stop()


class Watch:
    """A thread that looks whether each program of the default namespace has its limits."""

    def __init__(self, cluster: WholeCluster) -> None:
        self._cgroup = cluster.node.cgroups[0].name
        system = cluster.api.list(claimed_pods.SYSTEM_PODS)
        self._others = {pod["metadata"]["uid"] for pod in system}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        #: What was seen, and what had no limits.
        self.seen, self.wrong = set[tuple[str, str]](), list[str]()

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(0.05):
            for process in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):
                    self._look(process)

    def _look(self, process: Path) -> None:
        cgroups = (process / "cgroup").read_text()
        found = re.search(rf"{self._cgroup}/\S*pod([-0-9a-f]{{36}})", cgroups)
        program = str((process / "exe").readlink())
        # The sandbox is busybox. A container begins as a copy of runc without a path, or as runc,
        # which runs its hooks.
        is_none = program == "/" or re.search("busybox|runc|hook", program)
        if found is None or found[1] in self._others or is_none:
            return
        mounts = {line.split()[4] for line in (process / "mountinfo").read_text().splitlines()}
        if mounts:
            self.seen.add((process.name, program))
            if not mounts >= MOUNTS:
                self.wrong.append(f"{program} of {found[1]} has no {sorted(MOUNTS - mounts)}")


def test_no_program_runs_without_its_limits(cluster: ClaimsCluster) -> None:
    """Takes three to ten minutes for 100 pods and 15 kills."""
    api, whole, dice = cluster.api, cluster.whole, random.Random(0)  # noqa: S311
    for name, requests in (
        ("one", {"gpu": "1Gi"}),
        ("two", {"gpu": "2Gi"}),
        ("parts", {"a": "1Gi", "b": "2Gi"}),
    ):
        template = {"metadata": {"name": name}, "spec": {"spec": claims.spec(requests)}}
        api.create(TEMPLATES, template)
    for number in range(4):
        claims.create(api, f"shared-{number}", {"gpu": "4Gi"})
    made = kinds()
    with Watch(whole) as watch:
        for job in dice.sample([*_jobs(made)], k=len([*_jobs(made)])):
            api.create(JOBS, job)
        faults = [kill_agent, kill_containerd, kill_kubelet]
        for fault in chain.from_iterable(dice.sample(faults, 3) for _ in range(KILLS)):
            time.sleep(dice.uniform(1, APART_S))
            fault(whole, dice)
        try:
            waiting.until(lambda: not unfinished(cluster), "all Jobs are complete", DEADLINE)
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {unfinished(cluster)}\n{whole.state()}") from None
    print(f"{len(watch.seen)} programs were seen")
    assert not watch.wrong, sorted({*watch.wrong})
    assert len(watch.seen) > sum(kind.count for kind in made)
    check_amounts(cluster, made)
    crowd.delete(whole)
    api.delete_all(CLAIMS)
    waiting.until(lambda: not api.list(CLAIMS), "all claims are deleted")
    check_nothing_remains(whole, (*INTERRUPTED, "snapshot", "network namespaces"))
    waiting.until(
        lambda: not [*cluster.node.cdi.glob(f"{NAME}-claim_*")], "no claim is prepared", DEADLINE
    )


def kill_kubelet(cluster: WholeCluster, dice: random.Random) -> None:
    """It is started again at once."""
    KUBELET.strike(cluster)
    KUBELET.recover(cluster)


def unfinished(cluster: ClaimsCluster) -> list[str]:
    """The Jobs that are not complete."""
    return [
        job["metadata"]["name"]
        for job in cluster.api.list(JOBS)
        if job["status"].get("succeeded", 0) < job["spec"]["completions"]
    ]


def check_amounts(cluster: ClaimsCluster, made: Sequence[Kind]) -> None:
    """Each container that filled its memory held exactly its amount, by the ledger."""
    of = {kind.name: kind.amounts for kind in made}
    held = card_owners.held(cluster.gpu)
    for pod in cluster.api.list(PODS):
        for name, mib in of[pod["metadata"]["labels"]["kind"]].items():
            cards = held.get(Container(pod["metadata"]["uid"], name), {})
            if pod["status"]["phase"] == "Succeeded" and mib is not None:
                assert [*cards.values()] == [mib * MIB], (pod["metadata"]["name"], name, cards)
            else:
                assert sum(cards.values()) <= (mib or 4096) * MIB
