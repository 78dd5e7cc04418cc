"""The large cluster of the scheduler's measurements: nodes, pods, and which cards these have.

The allocator places the pods itself, so that no card has more than it can give; the same objects
are a snapshot, the answers of an API server, and what is written to a real one. The suite's rows
name its command.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial

from bench import rows
from cluster import extended, objects
from cluster.api import Object
from hami_py._native import Allocator
from hami_py.errors import HamiError
from hami_py.model import pods
from hami_py.model.pods import wire

COMMAND = "make bench-scheduler"

row = partial(rows.row, COMMAND)

CARDS = 8

#: Memory in MiB, cores and cards of a few usual pods.
KINDS = (
    (3_000, 10, 1),
    (8_000, 20, 1),
    (16_000, 30, 1),
    (10_000, 0, 1),
    (24_000, 40, 1),
    (4_000, 5, 2),
    (30_000, 30, 1),
    (2_000, 10, 1),
)


@dataclass(frozen=True)
class Size:
    """How large the cluster is; as many pods are on every node, of all kinds."""

    nodes: int
    pods: int

    def kind(self, at: int) -> tuple[int, int, int]:
        """MiB, cores and cards of a pod."""
        turn, node = divmod(at, self.nodes)
        return KINDS[(turn + node) % len(KINDS)]

    def __str__(self) -> str:
        return f"{self.nodes:,} nodes of {CARDS} cards with {self.pods:,} pods"


def node_name(at: int) -> str:
    return f"gpu-node-{at:05}"


def cards(at: int) -> list[wire.Card]:
    """The cards of a node: of two models, four on each NUMA node."""
    model = "NVIDIA H100 80GB HBM3" if at % 3 == 0 else "NVIDIA A100-SXM4-80GB"
    uuid = "GPU-{:05}-{}-4b1f-9d0e-6f1d2c3b4a59"
    return [
        wire.Card(
            uuid=uuid.format(at, index),
            index=index,
            model=model,
            memory_mib=81_920,
            numa=index // 4,
        )
        for index in range(CARDS)
    ]


def node(at: int) -> Object:
    """The node as its agent publishes it."""
    return extended.node(node_name(at), cards(at))


def limits(mib: int, cores: int, count: int) -> dict[str, int]:
    asked = {"nvidia.com/gpu": count, "nvidia.com/gpumem": mib, "nvidia.com/gpucores": cores}
    return {name: value for name, value in asked.items() if value}


def uid(at: int) -> str:
    return f"00000000-0000-4000-8000-{at:012}"


def request(at: int, kind: tuple[int, int, int]) -> wire.PodRequest:
    mib, cores, count = kind
    ask = wire.ContainerRequest("main", "app", count, wire.Size(mib=mib), cores)
    return wire.PodRequest(
        wire.PodName(uid(at), "default", f"job-{at}"), 0, (ask,), wire.CardRequest()
    )


@dataclass(frozen=True)
class State:
    """A filled cluster: the engine's state and its digest, and by pod its assignment."""

    size: Size
    snapshot: bytes
    digest: str
    assignments: tuple[wire.Assignment, ...]

    def pod(self, at: int) -> Object:
        """A pod as it is after its binding."""
        assignment = self.assignments[at]
        metadata = {
            "namespace": "default",
            "uid": uid(at),
            "labels": {"hami.io/pod": "true"},
            "annotations": {pods.annotations.ASSIGNMENT: pods.encode_assignment(assignment)},
        }
        asked = limits(*self.size.kind(at))
        return objects.pod(f"job-{at}", asked, metadata=metadata, nodeName=assignment.node)

    def pods(self) -> Iterator[Object]:
        """All of them."""
        return map(self.pod, range(self.size.pods))

    def given(self) -> dict[str, int]:
        """Bytes of memory that the pods have of each node."""
        given: Counter[str] = Counter()
        for assignment in self.assignments:
            for grants in assignment.containers.values():
                mib = sum(grant.memory_mib for grant in grants)
                given[assignment.node] += mib << 20
        return dict(given)


@cache
def fill(size: Size) -> State:
    """Places the pods, as many on each node."""
    allocator = Allocator()
    for at in range(size.nodes):
        allocator.set_node(wire.encode(wire.Node(node_name(at), tuple(cards(at)))))
    assignments = []
    for at in range(size.pods):
        asked = wire.encode(request(at, size.kind(at)))
        try:
            reserved = allocator.reserve(asked, node_name(at % size.nodes), 0)
        except HamiError as error:
            raise AssertionError(f"pod {at} has no room: place fewer pods a node") from error
        allocator.place(asked, reserved, True)
        assignments.append(reserved)
    decoded = tuple(map(pods.decode_assignment, assignments))
    return State(size, allocator.snapshot(), allocator.digest(), decoded)
