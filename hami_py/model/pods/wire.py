"""The types of the JSON that Python and the allocator exchange.

The serde types of the Rust core (native/allocator/src/wire) are the schema; these mirror them. An
unknown field is an error on both sides, except in annotations (annotations.py), and an absent field
has its default. Memory is in MiB, cores are percent of one card's time.
"""

from typing import Annotated, Literal, TypeAlias, get_args

import msgspec

from hami_py.model.cards import is_mig
from hami_py.model.limits import Level
from hami_py.model.pods.decoding import prepare

NodeMode: TypeAlias = Literal["full", "memory", "exclusive", "share", "topology", "mig", "mps"]
"""How a node uses its cards; this is the only list of the modes in Python. ``full``: memory and
cores are counted and enforced. ``memory``: only memory is. ``exclusive``: whole cards only.
``share``: counted like ``full``, not enforced. ``topology``: like ``full``, and several cards of a
container are selected by their links. ``mig``: like ``full``, and the node agent makes instances on
cards in MIG mode. ``mps``: like ``full``, and NVIDIA's server enforces the limits."""

Sharing: TypeAlias = Literal["hami-core", "mig", "mps"]
"""How a pod may request its cards to be shared. ``hami-core``: by our library, so below the level
``mig``, on nodes of any mode except ``mps``. ``mig``: cards of the level ``mig``. ``mps``: nodes of
that mode."""

Placement: TypeAlias = Literal["binpack", "spread"]
Topology: TypeAlias = Literal["none", "best-effort", "strict"]
Order: TypeAlias = Literal["binpack", "spread", "numa", "topology", "mutex"]
Kind: TypeAlias = Literal["init", "sidecar", "app"]

NODE_MODES: tuple[NodeMode, ...] = get_args(NodeMode)
SHARINGS: tuple[Sharing, ...] = get_args(Sharing)
PLACEMENTS: tuple[Placement, ...] = get_args(Placement)

# The ranges of the allocator's integers.
Small: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Percent: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=100)]


class _Wire(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """The base of these types: an absent field has its default."""


class _Annotated(_Wire, frozen=True, forbid_unknown_fields=False):
    """The base of the types in annotations: fields of a newer version are ignored."""


class MigProfile(_Annotated, frozen=True):
    """A kind of MIG instance that a card can have.

    Attributes:
        name: NVIDIA's name, like ``1g.10gb``.
        slices: compute slices of an instance.
        placements: memory slices at which an instance can begin.
        size: memory slices of an instance.
    """

    name: str
    memory_mib: Count
    slices: Small
    placements: tuple[Small, ...]
    size: Small


class Mig(_Annotated, frozen=True):
    """The instances that a card in MIG mode can have.

    Attributes:
        taken: memory slices of instances that the agent has not made, or cannot remove.
    """

    profiles: tuple[MigProfile, ...]
    taken: tuple[Small, ...] = ()


class Card(_Annotated, frozen=True):
    """A card of a node.

    Attributes:
        model: NVML's name, like ``NVIDIA A100-SXM4-80GB``.
        cores: percent of its time that may be allocated.
        slots: containers that may have it at the same time.
        numa: its NUMA node; None = unknown.
        healthy: False = no new container is placed on it.
        cordoned: True = the same, set by the operator.
        foreign_mib: memory used by programs that hami does not limit.
        links: the quality of its link to other cards, by their UUID; more is better.
        mig: the instances that the agent can make on it; None = it makes none there.
        level: the strongest that it offers to new containers; None = an older agent wrote it.
    """

    uuid: str
    index: Small
    model: str
    memory_mib: Count
    cores: Small = 100
    slots: Small = 32
    numa: Small | None = None
    healthy: bool = True
    cordoned: bool = False
    foreign_mib: Count = 0
    links: dict[str, Small] = {}
    mig: Mig | None = None
    level: Level | None = None

    @property
    def is_mig(self) -> bool:
        """Whether a container that has it has a MIG instance."""
        return self.mig is not None or is_mig(self.uuid)


class Node(_Wire, frozen=True):
    """A node and its cards."""

    name: str
    cards: tuple[Card, ...]
    mode: NodeMode = "full"
    placement: Placement | None = None


class Size(_Wire, frozen=True):
    """Memory on each card: in MiB, or in percent of the card's memory. Exactly one is set."""

    mib: Count | None = None
    percent: Percent | None = None


Memory: TypeAlias = Size | Literal["whole"]


class ContainerRequest(_Wire, frozen=True):
    """The request of one container.

    Attributes:
        kind: when it runs: before the app containers, beside them, or as one of them.
        cards: number of different cards.
        memory: memory on each of them.
        cores: percent of the time of each; 0 = no limit, and nothing is reserved.
    """

    container: str
    kind: Kind
    cards: Small
    memory: Memory
    cores: Percent = 0


class Weights(_Wire, frozen=True):
    """The weight of each resource when cards are compared."""

    slot: Small
    core: Small
    memory: Small


class CardRequest(_Wire, frozen=True):
    """Which cards a pod requests, and in which order, from its annotations.

    Attributes:
        use: UUIDs of the only cards allowed; empty = any.
        avoid: UUIDs of cards that are not allowed.
        types: the model must contain one of these words, in any case; empty = any model.
        avoid_types: the model must contain none of these words.
        numa: all cards of a container come from one NUMA node.
        order: the criteria by which cards are sorted, most important first.
        topology: the cards of a container are selected by their links.
        mutex: only cards that no other pod has.
        weights: None = equal weights.
        node_order: full or empty nodes first; None = the scheduler's setting.
        mode: how the cards must be shared; None = any way.
        isolation: the least level that the cards must offer.
    """

    use: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    avoid_types: tuple[str, ...] = ()
    numa: bool = False
    order: tuple[Order, ...] = ()
    topology: Topology = "none"
    mutex: bool = False
    weights: Weights | None = None
    node_order: Placement | None = None
    mode: Sharing | None = None
    isolation: Level = "none"


class PodName(_Wire, frozen=True):
    """The identity of a pod. During admission it has no UID yet, and perhaps no name."""

    uid: str
    namespace: str
    name: str


class PodRequest(_Wire, frozen=True):
    """The request of a pod.

    Attributes:
        priority: the pod's priority, by which Kubernetes preempts.
        containers: the requests of its containers: init containers first, in the pod's order.
    """

    pod: PodName
    priority: int
    containers: tuple[ContainerRequest, ...]
    card_request: CardRequest


class Instance(_Annotated, frozen=True):
    """A MIG instance and its position on the card.

    Attributes:
        profile: NVIDIA's name of its profile, like ``1g.10gb``.
        start: its first memory slice.
        size: its memory slices.
    """

    profile: str
    start: Small
    size: Small


class CardAllocation(_Annotated, frozen=True):
    """The part of one card that is allocated to a container.

    Attributes:
        card: the card's UUID.
        memory_mib: the memory limit inside the container.
        cores: percent of the card's time; 0 = no limit.
        mig: the instance of it that the agent makes; None = the card itself, which may be one.
    """

    card: str
    memory_mib: Count
    cores: Percent
    mig: Instance | None = None

    @property
    def is_mig(self) -> bool:
        """Whether it is a MIG instance."""
        return self.mig is not None or is_mig(self.card)


class Assignment(_Annotated, frozen=True, omit_defaults=False):
    """The cards of a pod: the annotation that the binding writes. See assignment.py."""

    version: int
    pod: str
    node: str
    containers: dict[str, tuple[CardAllocation, ...]]


class Resize(_Wire, frozen=True):
    """New limits for containers of a pod: an annotation. See resize.py."""

    version: int
    containers: dict[str, tuple[CardAllocation, ...]]


class Cards(_Annotated, frozen=True):
    """The cards of a node: the annotation that its node agent writes. See nodes.py."""

    version: int
    cards: tuple[Card, ...]


class Quota(_Wire, frozen=True):
    """The most that the pods of a namespace may have together; None = no limit."""

    namespace: str
    name: str
    gpu: Count | None = None
    memory_mib: Count | None = None
    cores: Count | None = None


_encoder = msgspec.json.Encoder(order="deterministic")


def encode(value: _Wire) -> bytes:
    """The JSON of a value: the same bytes for the same value."""
    return _encoder.encode(value)


prepare(Assignment, Cards, Node)
