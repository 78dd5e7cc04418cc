"""Pods under limits in a whole cluster: what a CUDA program in them sees, takes and gets.

The program is cuda-bindings', in an image that contains nothing of hami. What the stub's ledger
says is the oracle: it runs outside of the pods, and shares no code with hami.
"""

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster import images, objects, waiting
from cluster.api import Object
from cluster.deployed import create_soon
from cluster.kubectl import kubectl_command
from cluster.objects import NODES, PODS
from cluster.whole import WholeCluster
from support.running import Started

PROGRAM = ("/usr/bin/python3", "/programs/with_cuda_bindings.py")
FILL, COMPUTE = (*PROGRAM, "fill", "256"), (*PROGRAM, "compute")

MIB = 1 << 20

#: A node with this label gets an agent.
LABEL = {"hami.io/node": "true"}

#: The pod of `start_first`.
FIRST = "first"

#: Seconds until the agent has published the cards, or a program in a pod has ended.
DEADLINE = 120.0


@dataclass(frozen=True)
class Limited:
    """A pod and its limits; ``memory_mib`` and ``cores`` are of each card."""

    name: str
    memory_mib: int
    cores: int
    cards: int = 1

    @property
    def limits(self) -> dict[str, int]:
        """What its container requests."""
        return {
            "nvidia.com/gpu": self.cards,
            "nvidia.com/gpumem": self.memory_mib,
            "nvidia.com/gpucores": self.cores,
        }

    def pod(self, script: str, **spec: Any) -> Object:
        """The pod, with a shell script in the image of the client."""
        # By the group, the stub's ledger knows the pod's processes from others.
        env = [{"name": "STUB_GPU_GROUP", "value": self.name}]
        image = {"image": images.CLIENT, "imagePullPolicy": "Never"}
        command = ["/bin/sh", "-euc", script]
        container = objects.container("main", self.limits, env=env, command=command, **image)
        return objects.pod(self.name, containers=[container], **{"restartPolicy": "Never", **spec})


@dataclass(frozen=True)
class Result:
    """What became of a pod. Amounts are in MiB; ``percent`` is of the card's time.

    ``seen`` is the card's memory and ``allocated`` what the program got of it, both as it reports
    them; ``peak`` is the most that it held with the driver's own memory, by the ledger; ``percent``
    is by the ledger too, for the time in which all pods computed.
    """

    card: str
    seen: float
    allocated: float
    error: str
    peak: float
    percent: float


def install(cluster: WholeCluster) -> None:
    """Apply deploy/, and wait until all parts are ready and the node's cards are known."""
    cluster.api.patch(f"{NODES}/{cluster.node.name}", {"metadata": {"labels": LABEL}})
    cluster.apply()
    for part in ("deployment/hami-webhook", "deployment/hami-scheduler", "daemonset/hami-node"):
        cluster.rolled_out(part)
    waiting.until(lambda: shown(cluster)["nvidia.com/gpu"] > 0, "the node has cards", DEADLINE)


def start_first(cluster: WholeCluster) -> None:
    """Run a pod and delete it: the scheduler holds its lease for long enough after that."""
    first = Limited(FIRST, 1024, 5)
    create_soon(cluster.control_plane, first.pod("sleep infinity"))
    running(cluster, first.name)
    cluster.api.delete(f"{PODS}/{first.name}")
    waiting.gone(cluster.api, f"{PODS}/{first.name}")


def shown(cluster: WholeCluster) -> dict[str, int]:
    """The node's allocatable amounts of our resources."""
    status = cluster.api.get(f"{NODES}/{cluster.node.name}")["status"]
    names = ("nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores")
    return {name: _number(status["allocatable"].get(name, "0")) for name in names}


def measure(cluster: WholeCluster, pods: Sequence[Limited], seconds: int) -> dict[str, Result]:
    """Run these pods: each fills its memory; then all compute at the same time for so long."""
    for pod in pods:
        create_soon(cluster.control_plane, pod.pod("sleep infinity"))
    for pod in pods:
        running(cluster, pod.name)
    filled = {pod.name: json.loads(run_in(cluster, pod.name, FILL)) for pod in pods}
    ledger = cluster.gpu.ledger()
    shares = compute(cluster, [pod.name for pod in pods], seconds)
    results = {}
    for pod in pods:
        report, (card, peak) = filled[pod.name], _used(ledger, pod.name)
        results[pod.name] = Result(
            card=card,
            seen=report["total"] / MIB,
            allocated=report["got"] / MIB,
            error=report["error"],
            peak=peak / MIB,
            percent=shares[pod.name],
        )
    return results


def compute(cluster: WholeCluster, names: Sequence[str], seconds: int) -> dict[str, float]:
    """Let programs in these pods compute together; percent of the card's time by the ledger."""
    with contextlib.ExitStack() as stack:
        programs = [
            stack.enter_context(Started(command(cluster, name, *COMPUTE, str(seconds)), {}))
            for name in names
        ]
        for program in programs:
            program.wait_for("ready", DEADLINE)
        for program in programs:
            program.tell("go")
        done = [program.finish() for program in programs]
    for each in done:
        assert each.code == 0, f"a program ended with {each.code}\n{each.err}"
    reports = {name: json.loads(each.lines[-1]) for name, each in zip(names, done, strict=True)}
    return _percent(cluster, reports)


def command(cluster: WholeCluster, pod: str, *program: str) -> list[str]:
    """The command line that runs a program in a pod, with the input and output of the caller."""
    exec_ = ("exec", "--stdin", pod, "--", *program)
    return [*map(str, kubectl_command(cluster.control_plane)), *exec_]


def run_in(cluster: WholeCluster, pod: str, program: Sequence[str]) -> str:
    """The output of a program in a pod, which has to succeed."""
    return cluster.kubectl("exec", pod, "--", *program)


def running(cluster: WholeCluster, name: str) -> Object:
    """The pod, once all of its containers run."""

    def look() -> Object | None:
        pod = cluster.api.get(f"{PODS}/{name}")
        # Its phase is the same while a container cannot start.
        if pod["status"].get("phase") != "Running":
            return None
        states = [each["state"] for each in pod["status"]["containerStatuses"]]
        return pod if all("running" in state for state in states) else None

    try:
        return waiting.until(look, f"pod {name} runs", DEADLINE)
    except TimeoutError as error:
        raise TimeoutError(f"{error}\n{cluster.state()}") from None


def ended(cluster: WholeCluster, name: str) -> str:
    """The output of a pod that has ended well."""

    def look() -> str | None:
        phase = cluster.api.get(f"{PODS}/{name}")["status"].get("phase")
        return phase if phase in ("Succeeded", "Failed") else None

    phase = waiting.until(look, f"pod {name} has ended\n", DEADLINE)
    text = output(cluster, name)
    assert phase == "Succeeded", f"{text}\n{cluster.state()}"
    return text


def output(cluster: WholeCluster, name: str) -> str:
    """What a pod has printed, without the runtime's marks."""
    lines = [line.split(" ", 3) for line in cluster.node.log(name).splitlines()]
    return "\n".join(parts[3] for parts in lines if len(parts) > 3)


def _used(ledger: Mapping[str, Any], group: str) -> tuple[str, int]:
    """The card that a group of processes has used, and the most bytes at one time."""
    used = {
        card["uuid"]: card["groups"][group]["occupied"]["peak"]
        for card in ledger["cards"]
        if group in card["groups"]
    }
    cards = [uuid for uuid, peak in used.items() if peak]
    assert len(cards) == 1, f"{group} has used {cards}"
    return cards[0], used[cards[0]]


def _percent(cluster: WholeCluster, reports: Mapping[str, Any]) -> dict[str, float]:
    """Each group's part of the time between the last begin and the first end."""
    begin = max(report["began_ns"] for report in reports.values())
    end = min(report["ended_ns"] for report in reports.values())
    assert end > begin, f"they did not compute at the same time: {reports}"
    busy = dict.fromkeys(reports, 0)
    for process in cluster.gpu.control({"command": "history"})["processes"]:
        if process["group"] in busy:
            busy[process["group"]] += sum(
                nanoseconds
                for card in process["cards"]
                for start, nanoseconds in card["buckets"]
                if begin <= start < end
            )
    return {name: 100 * nanoseconds / (end - begin) for name, nanoseconds in busy.items()}


def _number(quantity: str) -> int:
    factor = {"k": 1000, "M": 1000_000}.get(quantity[-1:], 1)
    return int(quantity.rstrip("kM")) * factor
