"""The figures of a node. Memory is in bytes, times are in seconds, shares are parts of 1."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Level = Literal["preload", "none"]
"""How the limits of a container are enforced."""


@dataclass(frozen=True)
class CardFigures:
    """A card of the node.

    Attributes:
        uuid: its UUID.
        index: its index in NVML.
        model: its model.
        memory: all of its memory.
        used: the part that is in use, by NVML; None = unknown.
        allocated: the part that is allocated to containers.
        share_allocated: the allocated part of its time.
        foreign: memory that no allocation covers.
        healthy: new pods may get it.
    """

    uuid: str
    index: int
    model: str
    memory: int
    used: int | None
    allocated: int
    share_allocated: float
    foreign: int
    healthy: bool


@dataclass(frozen=True)
class ContainerFigures:
    """A container on one of its cards, from the binding of its pod on.

    Attributes:
        namespace: of its pod.
        pod: its pod's name.
        container: its name.
        card: the card's UUID.
        limit: its memory limit; None = no limit.
        used: the memory that its living processes hold, with the driver's own.
        driver: the part of it that the driver has taken for itself.
        peak: the largest value of ``used`` that was seen.
        share: the part of the card's time that it may use; None = no limit.
        engine_s: the time for which the card has run its kernels.
        throttled_s: the time for which its threads have waited to launch.
        refusals: the number of refused allocations.
        processes: the number of its processes that use the library.
        level: how its limits are enforced.
        soft: it also gets idle time; None = it has no share, or has not started.
    """

    namespace: str
    pod: str
    container: str
    card: str
    limit: int | None
    share: float | None
    level: Level
    soft: bool | None = None
    used: int = 0
    driver: int = 0
    peak: int = 0
    engine_s: float = 0.0
    throttled_s: float = 0.0
    refusals: int = 0
    processes: int = 0


@dataclass(frozen=True)
class PodExcess:
    """The memory of a card that the processes of a pod hold beyond the pod's limits, by NVML.

    ``memory`` is in bytes.
    """

    namespace: str
    pod: str
    card: str
    memory: int


@dataclass(frozen=True)
class NodeFigures:
    """All of them.

    Attributes:
        node: the node's name.
        cards: its cards.
        containers: its containers with cards.
        findings: by kind, the number of processes that no allocation explains.
        waiting: the number of containers that wait at their start.
        registered: the kubelet knows the devices.
        other_devices: the number of containers whose device IDs name other cards than they have.
        excess: the pods that hold more than their limits.
    """

    node: str
    cards: Sequence[CardFigures] = ()
    containers: Sequence[ContainerFigures] = ()
    findings: Mapping[str, int] = field(default_factory=dict)
    waiting: int = 0
    registered: bool = False
    other_devices: int = 0
    excess: Sequence[PodExcess] = ()
