"""A hundred pods at once from Jobs on one node, of mixed sizes.

A container's program takes all the memory that it gets on each of its cards, and keeps it
(programs/tenant.c). `card_owners` tells who has which card.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from cluster import images, objects, waiting
from cluster.api import Object
from cluster.objects import PODS
from cluster.whole import WholeCluster

#: The node's cards.
CARDS = ",".join(["a100-80"] * 8)

#: The kubelet allows 110 pods by default. hami's own are five, and pods that end still count.
KUBELET = {"maxPods": 220}

JOBS = "/apis/batch/v1/namespaces/default/jobs"

#: Pods of a Job: few, because a Job waits longer after each of its pods that has failed.
_OF_A_JOB = 2

#: Seconds until all pods run, or all are deleted, on a busy machine.
DEADLINE = 300.0


@dataclass(frozen=True)
class Size:
    """What a container requests of each of its cards."""

    memory_mib: int
    cores: int
    cards: int = 1


def limits(size: Size) -> dict[str, int]:
    """The resources that a container of this size requests from hami."""
    return {
        "nvidia.com/gpu": size.cards,
        "nvidia.com/gpumem": size.memory_mib,
        "nvidia.com/gpucores": size.cores,
    }


Requests = Callable[[Size], Mapping[str, int]]


@dataclass(frozen=True)
class Kind:
    """Some pods of the crowd: how many, and the sizes of their containers."""

    name: str
    count: int
    main: Size
    init: Size | None = None
    sidecar: Size | None = None


Kinds = tuple[Kind, ...]

#: Together 703 of 800 % of the cards' time, and half of their memory.
CROWD: Kinds = (
    Kind("large", 2, Size(20480, 50)),
    Kind("middle", 2, Size(15360, 30)),
    Kind("double", 4, Size(8192, 5, cards=2)),
    Kind("double-init", 2, Size(4096, 5, cards=2), init=Size(4096, 5, cards=2)),
    Kind("init", 6, Size(4096, 5), init=Size(4096, 5)),
    Kind("large-init", 6, Size(2048, 5), init=Size(6144, 8)),
    Kind("sidecar", 6, Size(3072, 5), sidecar=Size(2048, 5)),
    Kind("small", 44, Size(1024, 5)),
    Kind("usual", 28, Size(3072, 5)),
)


#: The same without large parts of a card's time. Each pod of these fits on some card, wherever the
#: others are: one that is replaced finds room.
STEADY: Kinds = tuple(
    replace(kind, main=replace(kind.main, cores=min(kind.main.cores, 10))) for kind in CROWD
)


def create(
    cluster: WholeCluster,
    kinds: Kinds = CROWD,
    program: str = "fill",
    requests: Requests = limits,
    retries: int = 1000,
) -> None:
    """Create all Jobs.

    ``requests`` are what a container of a size requests. ``retries`` is how often a Job replaces a
    pod that has failed.
    """
    for job in _jobs(kinds, program, requests):
        job["spec"]["backoffLimit"] = retries
        cluster.api.create(JOBS, job)


def delete(cluster: WholeCluster) -> None:
    """Delete all Jobs, and wait until their pods are deleted."""
    code, answer = cluster.api.request("DELETE", JOBS, {"propagationPolicy": "Background"})
    assert code == 200, answer
    waiting.until(lambda: not cluster.api.list(PODS), "all pods are deleted", DEADLINE)


def running(cluster: WholeCluster, kinds: Kinds = CROWD) -> list[Object]:
    """All pods of the crowd, once they run."""
    return all_running(cluster, sum(kind.count for kind in kinds))


def all_running(
    cluster: WholeCluster, count: int, chosen: Callable[[Object], bool] = lambda pod: True
) -> list[Object]:
    """The pods, once so many run, of those that are chosen."""

    def all_run() -> list[Object] | None:
        found = [pod for pod in cluster.api.list(PODS) if runs(pod) and chosen(pod)]
        return found if len(found) == count else None

    try:
        return waiting.until(all_run, f"{count} pods run", DEADLINE)
    except TimeoutError as error:
        raise TimeoutError(f"{error}\n{cluster.state()}") from None


def runs(pod: Object) -> bool:
    """Whether all of its containers run, and it is not being deleted.

    A pod that a kubelet rejects after a restart is in phase Running for a moment, without any.
    """
    statuses = pod["status"].get("containerStatuses")
    has_run = bool(statuses) and all("running" in each["state"] for each in statuses)
    return has_run and "deletionTimestamp" not in pod["metadata"]


def _jobs(kinds: Kinds, program: str, requests: Requests) -> Iterator[Object]:
    for kind in kinds:
        for number in range(0, kind.count, _OF_A_JOB):
            pods = min(_OF_A_JOB, kind.count - number)
            yield {
                "metadata": {"name": f"{kind.name}-{number // _OF_A_JOB}"},
                "spec": {
                    "parallelism": pods,
                    "completions": pods,
                    "template": {"spec": _pod(kind, program, requests)["spec"]},
                },
            }


def _pod(kind: Kind, program: str, requests: Requests) -> Object:
    first = []
    if kind.init is not None:
        first.append(container("init", "once", requests(kind.init)))
    if kind.sidecar is not None:
        sidecar = container("sidecar", program, requests(kind.sidecar), restartPolicy="Always")
        first.append(sidecar)
    spec: Object = {
        "initContainers": first,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
    }
    return objects.pod(containers=[container("main", program, requests(kind.main))], **spec)


def container(name: str, program: str, requests: Mapping[str, int], **more: object) -> Object:
    """A container that runs `tenant PROGRAM`."""
    env = [
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        # By the group, the stub's ledger knows a container's processes from others.
        {"name": "STUB_GPU_GROUP", "value": f"$(POD)/{name}"},
    ]
    image = {"image": images.CLIENT, "imagePullPolicy": "Never"}
    command = ["/programs/tenant", program]
    return objects.container(name, requests, env=env, command=command, **image, **more)
