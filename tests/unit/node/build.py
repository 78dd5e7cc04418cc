"""Short ways to write a node, its pods and what containers on it have."""

from collections.abc import Collection, Mapping, Sequence

from hami_py.model.pods.wire import Assignment, CardAllocation, Kind
from hami_py.node.decision import BoundPod, Capacity, NodeView

Key = tuple[str, str]
"""The UID of a pod, and the name of a container."""


def on(card: str, memory_mib: int = 1000, cores: int = 0) -> CardAllocation:
    """A part of a card."""
    return CardAllocation(card, memory_mib, cores)


def bound(uid: str, /, **containers: CardAllocation | Sequence[CardAllocation]) -> BoundPod:
    """A pod with these cards; a container's kind is the first word of its name, or ``app``."""
    cards = {
        name: (each,) if isinstance(each, CardAllocation) else tuple(each)
        for name, each in containers.items()
    }
    return BoundPod(Assignment(1, uid, "n1", cards), {name: kind_of(name) for name in cards})


def kind_of(container: str) -> Kind:
    """The kind of a container in these tests, by its name."""
    if container.startswith("init"):
        return "init"
    return "sidecar" if container.startswith("sidecar") else "app"


def view(
    *pods: BoundPod,
    cards: Mapping[str, int] | None = None,
    allocated: Mapping[Key, Sequence[CardAllocation]] | None = None,
    ended: Collection[Key] = (),
) -> NodeView:
    """A node with the cards A, B and C of 8000 MiB each, or these."""
    sizes = cards if cards is not None else dict.fromkeys("ABC", 8000)
    return NodeView(
        {uuid: Capacity(memory_mib) for uuid, memory_mib in sizes.items()},
        {pod.assignment.pod: pod for pod in pods},
        allocated or {},
        ended,
    )
