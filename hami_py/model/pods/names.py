"""Every name that a cluster may use for what we read, in one place.

A *profile* is one way of naming: HAMi's, so that manifests written for it work unchanged, and the
one of Alibaba Cloud's GPU sharing. A name that a profile has not is None and is not read. The
annotations that we write ourselves are in annotations.py.

Sources: HAMi's names from https://project-hami.io/docs, the other ones from
https://www.alibabacloud.com/help/en/ack/ack-managed-and-ack-dedicated/user-guide/ (its pages on
scheduling labels, on allocating computing power, and on sharing several GPUs).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from hami_py.model.pods.wire import NODE_MODES, NodeMode, Placement

_OUR_MODES: Mapping[str, NodeMode] = MappingProxyType({mode: mode for mode in NODE_MODES})
_ACK_MODES: Mapping[str, NodeMode] = MappingProxyType(
    {
        "default": "exclusive",
        "cgpu": "memory",
        "core_mem": "full",
        "share": "share",
        "topology": "topology",
        "mig": "mig",
        "mps": "mps",
    }
)


@dataclass(frozen=True)
class NameProfile:
    """One way of naming what a pod and a node say.

    Attributes:
        name: what the profile is called in settings and messages.
        gpu: resource: cards. It is the one that the kubelet knows, in every profile.
        memory: resource: memory.
        memory_unit_mib: MiB that one of it is.
        memory_is_total: what is written is divided among the cards; else each has as much.
        percentage: resource: memory in percent of the card's.
        cores: resource: percent of each card's time.
        priority: resource: 0 goes before 1 on the same card.
        cards_label: label of a pod: cards, where ``gpu`` is not written.
        use_uuid: annotation of a pod: these cards only.
        avoid_uuid: annotation of a pod: these not.
        use_type: annotation of a pod: these models only.
        avoid_type: annotation of a pod: these not.
        numa_bind: annotation of a pod: a container's cards from one NUMA node.
        mode: annotation of a pod: how the cards have to be shared.
        node_policy: annotation of a pod: full nodes first, or empty ones.
        card_policy: annotation of a pod: which cards first.
        weights: annotation of a pod: what counts when cards are compared.
        ignore_label: label of a namespace that the webhook leaves alone.
        ignore_value: its value.
        cordon: annotations of a node: cards that get nothing new.
        mode_label: label of a node: what its cards are for.
        modes: what its values mean.
        default_mode: of a node without the label.
        placement_label: label of a node: which cards first.
        default_placement: of a node without the label; None = as the scheduler is set.
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
    node_policy: str | None = None
    card_policy: str | None = None
    weights: str | None = None
    ignore_label: str | None = None
    ignore_value: str = "ignore"
    cordon: tuple[str, ...] = ()
    modes: Mapping[str, NodeMode] = field(default_factory=lambda: _OUR_MODES, hash=False)
    default_mode: NodeMode = "full"
    default_placement: Placement | None = None

    @cached_property
    def wishes(self) -> frozenset[str]:
        """The annotations of a pod that say which cards it wants."""
        cards = (self.use_uuid, self.avoid_uuid, self.use_type, self.avoid_type, self.mode)
        policies = (self.numa_bind, self.node_policy, self.card_policy, self.weights)
        return frozenset(name for name in (*cards, *policies) if name is not None)

    @cached_property
    def resources(self) -> tuple[str, ...]:
        """Every resource of the profile: what makes a pod ours."""
        names = (self.gpu, self.memory, self.percentage, self.cores, self.priority)
        return tuple(name for name in names if name is not None)


def hami(prefix: str = "nvidia.com", domain: str = "hami.io") -> NameProfile:
    """HAMi's names.

    Args:
        prefix: of the resources and of what wishes for cards; HAMi can be told another one.
        domain: of the policies, and of what nodes say.
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
        node_policy=f"{domain}/node-scheduler-policy",
        card_policy=f"{domain}/gpu-scheduler-policy",
        weights=f"{domain}/device-scoring-weights",
        ignore_label=f"{domain}/webhook",
        cordon=(f"{domain}/cordon", f"{domain}/device-cordon"),
        mode_label=f"{domain}/mode",
        placement_label=f"{domain}/placement",
    )


def aliyun(prefix: str = "aliyun.com", gpu: str = "nvidia.com/gpu") -> NameProfile:
    """The names of Alibaba Cloud's GPU sharing.

    Args:
        prefix: of its resources and of its label for cards.
        gpu: the resource of whole cards there, and what the kubelet hands out here.
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
