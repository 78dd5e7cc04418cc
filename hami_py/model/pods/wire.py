"""What Python and the allocator say to each other, as types: JSON in snake_case.

The Rust core's serde types are the schema, these mirror them. Unknown fields are errors on both
sides, and an absent field is its default. Memory is MiB, cores are percent of one card.
"""

from typing import Annotated, Literal, TypeAlias, get_args

import msgspec

NodeMode: TypeAlias = Literal["full", "memory", "exclusive", "share", "topology", "mig", "mps"]
"""What a node does with what is asked of its cards. ``full``: memory and cores are counted and
enforced. ``memory``: memory alone. ``exclusive``: whole cards only. ``share``: counted as in full,
not enforced. ``topology``: as full, and several cards of a container are chosen by their links.
``mig``: NVIDIA's partitions. ``mps``: as full, enforced by NVIDIA's server."""

Sharing: TypeAlias = Literal["hami-core", "mig", "mps"]
"""How a pod may wish its cards to be shared. ``hami-core``: by our library, so on nodes of any mode
but the other two, which are NVIDIA's."""

Placement: TypeAlias = Literal["binpack", "spread"]
Topology: TypeAlias = Literal["none", "best-effort", "strict"]
Order: TypeAlias = Literal["binpack", "spread", "numa", "topology", "mutex"]
Kind: TypeAlias = Literal["init", "sidecar", "app"]

NODE_MODES: tuple[NodeMode, ...] = get_args(NodeMode)
SHARINGS: tuple[Sharing, ...] = get_args(Sharing)
PLACEMENTS: tuple[Placement, ...] = get_args(Placement)

# The allocator's integers.
Small: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Percent: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=100)]


class _Wire(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """An absent field is its default."""


class MigProfile(_Wire, frozen=True):
    """A size of MIG instance that a card can make.

    Attributes:
        name: as NVIDIA writes it, ``1g.10gb``.
        memory_mib: what an instance of it has.
        slices: compute slices that it takes.
        placements: memory slices at which one can begin.
        size: memory slices that it takes.
    """

    name: str
    memory_mib: Count
    slices: Small
    placements: tuple[Small, ...]
    size: Small


class Mig(_Wire, frozen=True):
    """What a card in MIG mode can be cut into."""

    profiles: tuple[MigProfile, ...]


class Card(_Wire, frozen=True):
    """A card, as its node knows it.

    Attributes:
        uuid: the driver's name for it.
        index: NVML's number.
        model: as NVML writes it, ``NVIDIA A100-SXM4-80GB``.
        memory_mib: all of it.
        cores: percent of its time that may be given.
        slots: containers that it may have at once.
        numa: its NUMA node; None = not known.
        healthy: False = nothing new is placed on it.
        cordoned: the same, by the operator's wish.
        foreign_mib: what programs that are not ours were seen to use.
        overhead_mib: what the driver takes beyond a container's limit, per container.
        links: how well it reaches its peers, by their UUID; more is better.
        mig: None = not in MIG mode.
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
    overhead_mib: Count = 0
    links: dict[str, Small] = {}
    mig: Mig | None = None


class Node(_Wire, frozen=True):
    """A node and its cards."""

    name: str
    cards: tuple[Card, ...]
    mode: NodeMode = "full"
    placement: Placement | None = None


class Size(_Wire, frozen=True):
    """Memory on each card: so many MiB, or so many percent of what the card has. One of them."""

    mib: Count | None = None
    percent: Percent | None = None


Memory: TypeAlias = Size | Literal["whole"]


class Ask(_Wire, frozen=True):
    """What one container asks for.

    Attributes:
        container: its name.
        kind: when it runs: before the others, beside them, or as one of them.
        cards: how many different ones.
        memory: on each of them.
        cores: percent of the time of each; 0 = no limit, and nothing is kept for it.
    """

    container: str
    kind: Kind
    cards: Small
    memory: Memory
    cores: Percent = 0


class Weights(_Wire, frozen=True):
    """How much each resource says when cards are compared."""

    slot: Small
    core: Small
    memory: Small


class Wish(_Wire, frozen=True):
    """Which cards, and in which order, as the pod's annotations say.

    Attributes:
        use: these cards only; empty = any.
        avoid: these not.
        types: cards whose model has one of these words in it, whatever the case; empty = any.
        avoid_types: cards whose model has none of these words in it.
        numa: all cards of a container from one NUMA node.
        order: what cards are sorted by, the first first.
        topology: cards of a container by their links.
        mutex: only cards that nobody else has.
        weights: None = all the same.
        node_order: full nodes first or empty ones; None = as the scheduler is set.
        mode: how the cards have to be shared; None = any way.
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


class PodName(_Wire, frozen=True):
    """Which pod. In admission it has no UID yet, and perhaps no name."""

    uid: str
    namespace: str
    name: str


class Request(_Wire, frozen=True):
    """What a pod asks for.

    Attributes:
        pod: whose it is.
        priority: the pod's, by which Kubernetes preempts.
        asks: of the containers that ask for cards: init containers first, in the pod's order.
        wish: which cards.
    """

    pod: PodName
    priority: int
    asks: tuple[Ask, ...]
    wish: Wish


class Instance(_Wire, frozen=True):
    """The place of a MIG instance on its card.

    Attributes:
        profile: as NVIDIA writes it, ``1g.10gb``.
        start: its first memory slice.
        size: its memory slices.
    """

    profile: str
    start: Small
    size: Small


class Grant(_Wire, frozen=True):
    """What a container has of one card.

    Attributes:
        card: its UUID.
        memory_mib: the limit inside the container.
        cores: percent that count against the card; 0 = no limit.
        mig: the instance, where the card is cut; a container may have several of one card.
    """

    card: str
    memory_mib: Count
    cores: Percent
    mig: Instance | None = None


class Assignment(_Wire, frozen=True, omit_defaults=False):
    """Which cards a pod has: the annotation that binding writes. See assignment.py."""

    version: int
    pod: str
    node: str
    containers: dict[str, tuple[Grant, ...]]


class Cards(_Wire, frozen=True):
    """Which cards a node has: the annotation that its node agent writes. See nodes.py."""

    version: int
    cards: tuple[Card, ...]


class Quota(_Wire, frozen=True):
    """What the pods of a namespace may have together; None = no limit."""

    namespace: str
    name: str
    gpu: Count | None = None
    memory_mib: Count | None = None
    cores: Count | None = None


_encoder = msgspec.json.Encoder(order="deterministic")


def encode(value: _Wire) -> bytes:
    """The JSON of one of these: the same bytes for the same value."""
    return _encoder.encode(value)
