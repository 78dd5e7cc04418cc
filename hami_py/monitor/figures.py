"""The figures of a node. Memory is in bytes, times are in seconds, shares are parts of 1.

The agent serves them as JSON too. Releases may differ between nodes, so a field is never renamed,
and a new field has a default.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from hami_py.errors import InvalidValue
from hami_py.model import Level, NodeCard, SliceUse
from hami_py.model.pods.decoding import prepare

T = TypeVar("T")


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
class Starts:
    """How long pods took from their creation to the start of their first program.

    Attributes:
        counts: by upper bound in seconds, the number of pods that took at most so long.
    """

    counts: Mapping[float, int] = field(default_factory=dict)
    count: int = 0
    total_s: float = 0.0


@dataclass(frozen=True)
class NodeFigures:
    """The figures of one node.

    Attributes:
        containers: its containers with cards, from the binding of their pods on.
        findings: by kind, the number of processes that no allocation explains.
        registered: the kubelet knows the devices.
        other_devices: the number of containers whose device IDs name other cards than they have.
        excess: the pods that hold more than their limits.
    """

    node: str
    cards: Sequence[NodeCard] = ()
    containers: Sequence[SliceUse] = ()
    findings: Mapping[str, int] = field(default_factory=dict)
    waiting: int = 0
    registered: bool = False
    other_devices: int = 0
    excess: Sequence[PodExcess] = ()
    level: Level = "none"
    starts: Starts = field(default_factory=Starts)


def used_shares(figures: NodeFigures) -> dict[str, float]:
    """By card, the part of its time that its containers use, if that of one is known."""
    known: dict[str, list[float | None]] = {card.uuid: [] for card in figures.cards}
    for each in figures.containers:
        known.setdefault(each.use.uuid, []).append(each.share_used)
    return {
        card: sum(each for each in shares if each is not None)
        for card, shares in known.items()
        if not shares or any(each is not None for each in shares)
    }


def encode(figures: NodeFigures) -> bytes:
    """The figures as JSON."""
    return msgspec.json.encode(figures)


def decode(data: bytes) -> NodeFigures:
    """The figures of a node agent.

    Raises:
        InvalidValue: the data is not a node's figures.
    """
    return decode_answer(data, NodeFigures, "the figures of a node agent")


def decode_answer(data: bytes, kind: type[T], what: str) -> T:
    """The answer of a node agent.

    Raises:
        InvalidValue: the data does not match the type.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        fix = "update the node agents and this program to one release"
        raise InvalidValue(what, str(error), fix) from None


prepare(NodeFigures)
