"""Which container has which card: the answers of four programs that do not ask each other.

| function | the answer of |
|---|---|
| `assigned` | the scheduler: the annotation of the pod |
| `recorded` | the kubelet: its record of devices, whose number counts, decoded here |
| `ledger` | the node agent: its file |
| `held` | the driver: the stub's ledger, by the group of a container's processes |

Containers are named by their pod's UID and by ``init``, ``sidecar`` or ``main``, which is also when
they run. A program's group is `<pod UID>/<container>`.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from cluster import waiting
from cluster.api import Object
from cluster.gpu_pods import GPU, checkpoint
from cluster.node import Node
from cluster.node_gpu import NodeGpu
from cluster.objects import PODS
from cluster.whole import WholeCluster

MIB = 1 << 20

#: What may be allocated of an A100 with 80 GB.
CARD_MIB, CARD_CORES = 81920, 100


class Container(NamedTuple):
    """A container of a pod."""

    pod: str
    name: str


class Amount(NamedTuple):
    """A part of a card."""

    memory_mib: int
    cores: int


#: By container, the cards by UUID.
Allocations = dict[Container, dict[str, Amount]]


def assigned(pods: Iterable[Object]) -> Allocations:
    """What the scheduler has assigned to these pods, as far as they are bound."""
    found: Allocations = {}
    for pod in pods:
        text = pod["metadata"].get("annotations", {}).get("hami.io/assignment")
        for name, cards in json.loads(text)["containers"].items() if text else ():
            found[Container(pod["metadata"]["uid"], name)] = _amounts(cards)
    return found


def recorded(node: Node) -> dict[Container, list[str]]:
    """For each container, the cards of its devices; one occurs as often as it has a device."""
    return {
        Container(entry["PodUID"], entry["ContainerName"]): sorted(
            device.partition("::")[0] for ids in entry["DeviceIDs"].values() for device in ids
        )
        for entry in checkpoint(node)
        if entry["ResourceName"] == GPU
    }


def ledger(node: Node) -> Allocations:
    """What the node agent has allocated."""
    return {
        Container(entry["owner"], entry["container"]): _amounts(entry["cards"])
        for entry in entries(node)
    }


def entries(node: Node) -> list[dict[str, Any]]:
    """The entries of the node agent's ledger."""
    file = node.root / "var/lib/hami/ledger.json"
    # It is written when the first container starts.
    lines = file.read_text().splitlines() if file.exists() else ()
    return json.loads(lines[1])["entries"] if lines else []


def slots(node: Node) -> list[str]:
    """The names of the slots on the node."""
    return sorted(path.name for path in (node.root / "run/hami/slices").glob("*"))


def held(gpu: NodeGpu) -> dict[Container, dict[str, int]]:
    """For each container, by card, the most bytes that its programs held at one time."""
    found: dict[Container, dict[str, int]] = defaultdict(dict)
    for card in gpu.ledger()["cards"]:
        assert card["occupied"]["peak"] <= card["total"], card
        for group, holding in card["groups"].items():
            # Others are of no container, such as the process by which the agent measures a context.
            if holding["occupied"]["peak"] and "/" in group:
                container = Container(*group.split("/"))
                found[container][card["uuid"]] = holding["occupied"]["peak"]
    return dict(found)


def check_agreement(cluster: WholeCluster, pods: Iterable[Object]) -> None:
    """Wait until all agree, and each container has had all of its memory on its assigned cards."""
    uids = {pod["metadata"]["uid"] for pod in pods}
    wanted: Allocations = {}
    other: dict[Container, object] = {}

    def agree() -> bool:
        listed = cluster.api.list(PODS)
        wanted.clear()
        wanted.update(assigned(pod for pod in listed if pod["metadata"]["uid"] in uids))
        found, devices, allocated = held(cluster.gpu), recorded(cluster.node), ledger(cluster.node)
        other.clear()
        for container, cards in wanted.items():
            limits = {card: amount.memory_mib * MIB for card, amount in cards.items()}
            three = found.get(container), len(devices.get(container, ())), allocated.get(container)
            if three != (limits, len(cards), cards):
                other[container] = (cards, *three)
        # The node agent forgets a pod that has ended a second later.
        return not other and allocated == wanted

    with suppress(TimeoutError):
        waiting.until(agree, "all agree")
    assert not other, f"by container: assigned, held, recorded, allocated: {other}"
    assert ledger(cluster.node) == wanted


def ended(pods: Iterable[Object]) -> set[Container]:
    """The init containers of these pods that have succeeded; what they had is free."""
    return {
        Container(pod["metadata"]["uid"], status["name"])
        for pod in pods
        for status in pod["status"].get("initContainerStatuses", ())
        if status["state"].get("terminated", {}).get("exitCode") == 0
    }


def check_sums(allocations: Allocations, ended: Collection[Container]) -> None:
    """Check that no card is over-allocated, at any time of the pods' lives from now on."""
    pods: dict[tuple[str, str], dict[str, Amount]] = defaultdict(dict)
    for container in allocations.keys() - ended:
        for card, amount in allocations[container].items():
            pods[container.pod, card][container.name] = amount
    memory_mib: Counter[str] = Counter()
    cores: Counter[str] = Counter()
    for (_, card), containers in pods.items():
        memory_mib[card] += _most({name: each.memory_mib for name, each in containers.items()})
        cores[card] += _most({name: each.cores for name, each in containers.items()})
    assert max(memory_mib.values(), default=0) <= CARD_MIB, memory_mib
    assert max(cores.values(), default=0) <= CARD_CORES, cores


def _most(amounts: Mapping[str, int]) -> int:
    """An init container has ended when the main one starts; a sidecar runs beside both."""
    of = {name: amounts.get(name, 0) for name in ("sidecar", "init", "main")}
    return of["sidecar"] + max(of["init"], of["main"])


def _amounts(cards: Iterable[Mapping[str, Any]]) -> dict[str, Amount]:
    return {card["card"]: Amount(card["memory_mib"], card["cores"]) for card in cards}
