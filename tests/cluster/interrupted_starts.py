"""Pods that the driver limits, while what starts them is killed at random moments.

The programs of most pods are static and take all that they get: what each prints is what its limit
was when it started. Those of some pods accept to start without the driver's limit.
"""

import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from cluster import crowd, waiting
from cluster.crowd import Size
from cluster.deployed import create_soon
from cluster.kernel_pods import Limit, by_driver, by_pages, cgroup_of, static
from cluster.limited_pods import MIB
from cluster.node_faults import AGENT
from cluster.objects import PODS, pod
from cluster.whole import WholeCluster

#: How the names of the pods begin.
NAME = "start-"

#: Pods of a round, and how many of them accept to start without the driver's limit.
PODS_OF_A_ROUND, LENIENT = 5, 1

#: Seconds from the creation of the pods, or from one fault to the next.
APART_S = 1.5

#: Seconds until all is as it should be.
DEADLINE = 60.0

Fault = Callable[[WholeCluster, random.Random], None]


def kill_agent(cluster: WholeCluster, dice: random.Random) -> None:
    """The kubelet restarts it."""
    AGENT.strike(cluster)


def kill_containerd(cluster: WholeCluster, dice: random.Random) -> None:
    """It is away for a moment."""
    cluster.node.containerd.kill()
    time.sleep(dice.uniform(0, 1))
    cluster.node.containerd.start()


def kill_shim(cluster: WholeCluster, dice: random.Random) -> None:
    """The process of containerd that serves a pod, if there is one."""
    of = f'labels."io.kubernetes.pod.name"~=^{NAME}'
    ids = set(cluster.node.ctr("containers", "list", "-q", of).split())
    kill_one(dice, [process for process, id in _shims() if id in ids])


def kill_container(cluster: WholeCluster, dice: random.Random) -> None:
    """A program of a pod, if one runs."""
    pods = [each["metadata"] for each in cluster.api.list(PODS)]
    uids = [each["uid"] for each in pods if each["name"].startswith(NAME)]
    kill_one(dice, [process for uid in uids for process in cluster.processes(uid)])


FAULTS: tuple[Fault, ...] = (kill_agent, kill_containerd, kill_shim, kill_container)


def kill_one(dice: random.Random, processes: Sequence[int]) -> None:
    """SIGKILL to one of these processes."""
    if processes:
        with suppress(ProcessLookupError):
            os.kill(dice.choice(processes), signal.SIGKILL)


def _shims() -> Iterator[tuple[int, str]]:
    """The processes, each with the ID of its pod's sandbox."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_text().split("\0")
            if "containerd-shim" in words[0] and "-id" in words:
                yield int(process.name), words[words.index("-id") + 1]


class Round:
    """Some pods that start while two faults strike, and what they should have."""

    def __init__(self, cluster: WholeCluster, dice: random.Random, number: int) -> None:
        self._cluster, self._dice = cluster, dice
        self._mib = {
            f"{NAME}{number}-{pod}": 2 * dice.randint(512, 3000) for pod in range(PODS_OF_A_ROUND)
        }
        self._strict = [*self._mib][LENIENT:]
        self._others = by_driver(cluster.gpu)

    def run(self, faults: Sequence[Fault]) -> int:
        """Start the pods, let these faults strike, check all, delete the pods; how many started."""
        for name in self._mib:
            self._create(name)
        for fault in faults:
            time.sleep(self._dice.uniform(0, APART_S))
            print(f"{fault.__name__} at {time.strftime('%H:%M:%S')}", flush=True)
            fault(self._cluster, self._dice)
        wrong: list[str] = []

        def look() -> bool:
            wrong[:] = self._wrong()
            return not wrong

        with suppress(TimeoutError):
            waiting.until(look, "all is as it should be", DEADLINE)
        assert not wrong, f"{wrong}\n{self._cluster.state()}"
        starts = self._check_starts()
        for name in self._mib:
            self._cluster.api.delete(f"{PODS}/{name}")
        for name in self._mib:
            waiting.gone(self._cluster.api, f"{PODS}/{name}", DEADLINE)
        left: set[tuple[Path, Limit]] = set()

        def ended() -> bool:
            left.clear()
            left.update(by_driver(self._cluster.gpu).items() - self._others.items())
            return not left

        with suppress(TimeoutError):
            # The kubelet may still remove cgroups.
            waiting.until(ended, "no limit is left", DEADLINE)
        assert not left, f"limits are left of the round: {left}"
        return starts

    def _create(self, name: str) -> None:
        if name in self._strict:
            made = static(name, self._mib[name])
        else:
            limits = crowd.limits(Size(self._mib[name], 1))
            container = crowd.container("main", "fill", limits)
            made = pod(name, containers=[container], restartPolicy="Always")
        create_soon(self._cluster.control_plane, made)

    def _wrong(self) -> list[str]:
        """Why the round is not over yet; empty = all pods run, and all limits are right."""
        cluster, wrong = self._cluster, list[str]()
        expected: dict[Path, Limit | None] = {**self._others}
        of_pods = {cgroup.parent: limit for cgroup, limit in expected.items()}
        driver = by_driver(cluster.gpu)
        pages: dict[Path, Limit | None] = {**by_pages(cluster.node, cluster.gpu)}
        for name, mib in self._mib.items():
            found, limit = cluster.api.get(f"{PODS}/{name}"), Limit(0, mib * MIB)
            if found["status"].get("reason") == "UnexpectedAdmissionError":
                # No plugin was registered. A controller would do the same.
                cluster.api.delete(f"{PODS}/{name}", grace_seconds=0)
                self._create(name)
            try:
                cgroup = cgroup_of(cluster.node, found) if crowd.runs(found) else None
            except ValueError:
                # The kubelet has not noticed yet that it has ended.
                cgroup = None
            if cgroup is None or "holding" not in cluster.node.output(name):
                wrong.append(f"{name} does not run")
                continue
            expected[cgroup] = of_pods[cgroup.parent] = limit
            if name in self._strict and cgroup not in driver:
                wrong.append(f"{name} runs without the driver's limit")
        for cgroup, limit in driver.items():
            if cgroup not in expected:
                # A killed shim leaves a container of its pod, sometimes with runc's process.
                expected[cgroup] = pages[cgroup] = of_pods.get(cgroup.parent)
            if expected.get(cgroup) != limit:
                wrong.append(f"{cgroup} has {limit} instead of {expected.get(cgroup)}")
        if driver != pages:
            wrong.append(f"the driver limits {driver}, and the pages {pages}")
        return wrong

    def _check_starts(self) -> int:
        """Check what each program got when it started; the number of starts."""
        cluster, starts = self._cluster, 0
        groups = cluster.gpu.ledger()["cards"][0]["groups"]
        for name, mib in self._mib.items():
            made = cluster.api.get(f"{PODS}/{name}")
            if name in self._strict:
                got = set(map(int, re.findall(r"holding (\d+)", cluster.node.output(name))))
                assert got == {mib}, f"{name} requested {mib} MiB, and its programs got {got}"
            else:
                peak = groups[f"{made['metadata']['uid']}/main"]["occupied"]["peak"]
                assert peak == mib * MIB, f"{name} requested {mib} MiB, and held {peak / MIB}"
            (status,) = made["status"]["containerStatuses"]
            starts += 1 + status["restartCount"]
        return starts
