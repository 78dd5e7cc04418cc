"""Pods that start: a crowd at once, and one at a time. Programs themselves say when they started.

Each pod's program writes its start to the container's log (programs/tenant.c), so nobody asks the
API server meanwhile.
"""

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.node_clusters import Subject
from cluster import audit_log, crowd, objects, waiting
from cluster.crowd import Kinds, Size
from cluster.node import Node
from cluster.objects import PODS

#: What one pod at a time requests.
ONE = Size(1024, 5)

#: Seconds until a program has started.
DEADLINE = 120.0


@dataclass(frozen=True)
class One:
    """A pod that was alone: milliseconds until its program started."""

    since_created: float
    since_bound: float


def crowd_s(subject: Subject, kinds: Kinds) -> float:
    """Seconds from the creation of the first pod until the program of the last has started."""
    began = time.time()
    crowd.create(subject.cluster, kinds, "idle", subject.requests)
    count = sum(kind.count for kind in kinds)

    def all_started() -> list[float] | None:
        found = _starts(subject.cluster.node)
        return [*found.values()] if len(found) == count else None

    last = max(waiting.until(all_started, f"{count} programs start", crowd.DEADLINE))
    crowd.delete(subject.cluster)
    return last - began


def one_by_one(subject: Subject, count: int) -> list[One]:
    """Start a pod, wait for its program, delete it; then the next."""
    api, node = subject.cluster.api, subject.cluster.node
    created, started = dict[str, float](), dict[str, float]()
    for number in range(count):
        name = f"one-{number}"
        container = crowd.container("main", "idle", subject.requests(ONE))
        created[name] = time.time()
        api.create(PODS, objects.pod(name, containers=[container], restartPolicy="Never"))
        starts = partial(_starts, node, name)
        (started[name],) = waiting.until(starts, f"{name} starts", DEADLINE).values()
        api.delete(f"{PODS}/{name}")
        waiting.gone(api, f"{PODS}/{name}")
    bound = audit_log.bound_at(subject.cluster.control_plane)
    return [
        One(1000 * (started[name] - created[name]), 1000 * (started[name] - bound[name]))
        for name in created
    ]


def most_writes(subject: Subject) -> int:
    """The most writes to the API server by hami for one pod."""
    control_plane = subject.cluster.control_plane
    pods = audit_log.bound_at(control_plane)
    written = audit_log.writes_per_pod(control_plane, audit_log.HAMI, pods)
    return max(map(len, written.values()))


def _starts(node: Node, pod: str = "*") -> dict[str, float]:
    """By pod, when the program of its main container started, in seconds of the wall clock."""
    found = {}
    for log in node.pod_logs.glob(f"default_{pod}_*/main/0.log"):
        started = _started(log)
        if started is not None:
            found[log.parts[-3]] = started
    return found


def _started(log: Path) -> float | None:
    for line in log.read_text().splitlines():
        what, _, nanoseconds = line.rpartition(" ")
        if what.endswith(" started"):
            return int(nanoseconds) / 1e9
    return None
