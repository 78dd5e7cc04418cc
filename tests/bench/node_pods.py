"""Pods that start: a crowd at once, and one at a time. Programs themselves say when they started.

Each pod's program writes its start to the container's log (programs/tenant.c), so nobody asks the
API server meanwhile.
"""

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.node_clusters import Subject, only_cards
from cluster import audit_log, crowd, objects, waiting
from cluster.api import Object
from cluster.crowd import Kinds, Size
from cluster.limited_pods import FIRST
from cluster.node import Node
from cluster.objects import PODS

#: What one pod at a time requests.
ONE = Size(1024, 5)

#: Seconds until a program has started.
DEADLINE = 120.0


@dataclass(frozen=True)
class Start:
    """Milliseconds until the program of a pod has started."""

    since_created: float
    since_bound: float


@dataclass(frozen=True)
class Starts:
    """Of pods that were alone, with hami's limits and without limits, in turn on one node."""

    limited: list[Start]
    unlimited: list[Start]


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


def one_by_one(subject: Subject, count: int) -> Starts:
    """Start a pod, wait for its program, delete it; then the next, without limits; and so on.

    The program does not use the card: hami reports programs that use one outside of its limits.
    """
    created, started = dict[str, float](), dict[str, float]()
    for number in range(count):
        for kind, requests in (("limited", subject.requests), ("unlimited", only_cards)):
            name = f"{kind}-{number}"
            container = crowd.container("main", "wait", requests(ONE))
            created[name] = time.time()
            started[name] = start(subject, name, container)
    bound = audit_log.bound_at(subject.cluster.control_plane)
    starts = {
        name: Start(1000 * (started[name] - created[name]), 1000 * (started[name] - bound[name]))
        for name in created
    }
    return Starts(
        [start for name, start in starts.items() if name.startswith("limited")],
        [start for name, start in starts.items() if name.startswith("unlimited")],
    )


def start(subject: Subject, name: str, container: Object) -> float:
    """When the program of a new pod started; the pod does not exist any more."""
    api = subject.cluster.api
    api.create(PODS, objects.pod(name, containers=[container], restartPolicy="Never"))
    starts = partial(_starts, subject.cluster.node, name)
    (started,) = waiting.until(starts, f"{name} starts", DEADLINE).values()
    api.delete(f"{PODS}/{name}")
    waiting.gone(api, f"{PODS}/{name}")
    return started


def most_writes(subject: Subject) -> int:
    """The most writes to the API server by hami for one pod until now, beside events."""
    control_plane = subject.cluster.control_plane
    # The first pod waits for the scheduler's lease.
    pods = audit_log.bound_at(control_plane).keys() - {FIRST}
    written = audit_log.writes_per_pod(control_plane, audit_log.HAMI, pods)
    return max(sum(write.resource != "events" for write in writes) for writes in written.values())


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
