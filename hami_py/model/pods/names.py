"""The names of resources, annotations and labels that pods and nodes may use.

A *profile* is one set of names: HAMi's, so that manifests written for HAMi work unchanged, and
those of Alibaba Cloud's GPU sharing. A name that a profile lacks is None and is not read. The
annotations that hami itself writes are in annotations.py.

Sources: HAMi's names from https://project-hami.io/docs, the others from
https://www.alibabacloud.com/help/en/ack/ack-managed-and-ack-dedicated/user-guide/ (its pages on
scheduling labels, on allocating computing power, and on sharing several GPUs).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from hami_py.model.pods.wire import NODE_MODES, NodeMode, Placement

_OUR_MODES: Mapping[str, NodeMode] = MappingProxyType({mode: mode for mode in NODE_MODES})
_RENAMED_BY_ACK: Mapping[str, NodeMode] = {
    "default": "exclusive",
    "cgpu": "memory",
    "core_mem": "full",
}
# The other modes have the same name there.
_ACK_MODES: Mapping[str, NodeMode] = MappingProxyType(
    {**_RENAMED_BY_ACK, **{m: m for m in NODE_MODES if m not in _RENAMED_BY_ACK.values()}}
)


@dataclass(frozen=True)
class NameProfile:
    """The names that a kind of pods and nodes uses.

    Attributes:
        name: the profile's name in settings and messages.
        gpu: resource: number of cards. In every profile it is the one that the kubelet knows.
        memory: resource: memory.
        memory_unit_mib: MiB per unit of ``memory``.
        memory_is_total: ``memory`` is divided among the cards; otherwise it is per card.
        percentage: resource: memory in percent of the card's.
        cores: resource: percent of each card's time.
        priority: resource: 0 goes before 1 on the same card.
        cards_label: label of a pod: number of cards, where ``gpu`` is not written.
        use_uuid: annotation of a pod: only these cards.
        avoid_uuid: annotation of a pod: not these cards.
        use_type: annotation of a pod: only these models.
        avoid_type: annotation of a pod: not these models.
        numa_bind: annotation of a pod: all cards of a container from one NUMA node.
        mode: annotation of a pod: how its cards must be shared.
        isolation: annotation of a pod: the least level that its cards must offer.
        node_policy: annotation of a pod: full or empty nodes first.
        card_policy: annotation of a pod: the order of cards.
        weights: annotation of a pod: the weight of each resource when cards are compared.
        gang: annotation of a pod: the name of its containers' gang.
        share_mode: annotation of a pod: how its shares of time hold.
        ignore_label: label of a namespace whose pods the webhook does not review.
        ignore_value: its value.
        cordon: annotations of a node: cards that receive no new pods.
        mode_label: label of a node: how its cards are used.
        modes: the mode that each value of ``mode_label`` means.
        default_mode: the mode of a node without the label.
        placement_label: label of a node: the order of cards.
        default_placement: for a node without that label; None = the scheduler's setting.
    """

    name: str
    gpu: str
    memory: str
    cores: str
    mode_label: str
    placement_label: str
    memory_unit_mib: int = 1
    memory_is_total: bool = False
    percentage: str | None = None
    priority: str | None = None
    cards_label: str | None = None
    use_uuid: str | None = None
    avoid_uuid: str | None = None
    use_type: str | None = None
    avoid_type: str | None = None
    numa_bind: str | None = None
    mode: str | None = None
    isolation: str | None = None
    node_policy: str | None = None
    card_policy: str | None = None
    weights: str | None = None
    gang: str | None = None
    share_mode: str | None = None
    ignore_label: str | None = None
    ignore_value: str = "ignore"
    cordon: tuple[str, ...] = ()
    modes: Mapping[str, NodeMode] = field(default_factory=lambda: _OUR_MODES, hash=False)
    default_mode: NodeMode = "full"
    default_placement: Placement | None = None

    @cached_property
    def card_annotations(self) -> frozenset[str]:
        """The annotations of a pod that select its cards."""
        cards = (self.use_uuid, self.avoid_uuid, self.use_type, self.avoid_type, self.mode)
        policies = (self.numa_bind, self.node_policy, self.card_policy, self.weights)
        names = (*cards, *policies, self.isolation)
        return frozenset(name for name in names if name is not None)

    @cached_property
    def pod_annotations(self) -> frozenset[str]:
        """The annotations of a pod that are read."""
        others = (self.gang, self.share_mode)
        return self.card_annotations.union(name for name in others if name is not None)

    @cached_property
    def resources(self) -> tuple[str, ...]:
        """Every resource of the profile: a pod with one of them requests a GPU."""
        names = (self.gpu, self.memory, self.percentage, self.cores, self.priority)
        return tuple(name for name in names if name is not None)


def hami(prefix: str = "nvidia.com", domain: str = "hami.io") -> NameProfile:
    """HAMi's names.

    Args:
        prefix: of the resources and of the annotations that select cards; configurable in HAMi.
        domain: of the policies, the gang, the share mode, and the annotations and labels of nodes.
    """
    return NameProfile(
        name="hami",
        gpu=f"{prefix}/gpu",
        memory=f"{prefix}/gpumem",
        percentage=f"{prefix}/gpumem-percentage",
        cores=f"{prefix}/gpucores",
        priority=f"{prefix}/priority",
        use_uuid=f"{prefix}/use-gpuuuid",
        avoid_uuid=f"{prefix}/nouse-gpuuuid",
        use_type=f"{prefix}/use-gputype",
        avoid_type=f"{prefix}/nouse-gputype",
        numa_bind=f"{prefix}/numa-bind",
        mode=f"{prefix}/vgpu-mode",
        isolation=f"{domain}/isolation",
        node_policy=f"{domain}/node-scheduler-policy",
        card_policy=f"{domain}/gpu-scheduler-policy",
        weights=f"{domain}/device-scoring-weights",
        gang=f"{domain}/gang",
        share_mode=f"{domain}/share-mode",
        ignore_label=f"{domain}/webhook",
        cordon=(f"{domain}/cordon", f"{domain}/device-cordon"),
        mode_label=f"{domain}/mode",
        placement_label=f"{domain}/placement",
    )


def aliyun(prefix: str = "aliyun.com", gpu: str = "nvidia.com/gpu") -> NameProfile:
    """The names of Alibaba Cloud's GPU sharing.

    Args:
        prefix: of its resources and of its label for cards.
        gpu: the resource for whole cards there, and the one that the kubelet allocates here.
    """
    return NameProfile(
        name="aliyun",
        gpu=gpu,
        memory=f"{prefix}/gpu-mem",
        memory_unit_mib=1024,
        memory_is_total=True,
        cores=f"{prefix}/gpu-core.percentage",
        cards_label=f"{prefix}/gpu-count",
        mode_label="ack.node.gpu.schedule",
        modes=_ACK_MODES,
        default_mode="exclusive",
        placement_label="ack.node.gpu.placement",
        default_placement="binpack",
    )


HAMI = hami()
ALIYUN = aliyun()
