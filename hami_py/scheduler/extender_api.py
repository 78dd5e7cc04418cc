"""What kube-scheduler sends to an extender and expects back.

The names are those of ``k8s.io/kube-scheduler/extender/v1``, whose Go structs have no JSON tags:
every field is written as it is spelled there. Recorded ones are in ``tests/cluster/recordings``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from hami_py.errors import InvalidValue
from hami_py.model import check_object_name
from hami_py.model.pods.objects import Node, Pod

__all__ = [
    "BindArgs",
    "BindResult",
    "ExtenderArgs",
    "FilterArgs",
    "FilterResult",
    "HostPriority",
    "MetaPod",
    "MetaVictims",
    "PreemptArgs",
    "PreemptResult",
    "Victims",
    "filter_args",
]


class NodeList(msgspec.Struct, omit_defaults=True):
    """A list of whole nodes: sent where the extender is not said to know them."""

    items: list[Node] | None = None


_NO_NAMES = msgspec.Raw(b"null")


class ExtenderArgs(msgspec.Struct):
    """Asks which of the nodes a pod fits on, or how good they are."""

    pod: Pod = msgspec.field(name="Pod")
    nodes: NodeList | None = msgspec.field(name="Nodes", default=None)
    node_names: msgspec.Raw = msgspec.field(name="NodeNames", default=_NO_NAMES)

    def names(self) -> bytes:
        """The nodes' names: a JSON list, if the sender is right."""
        names = bytes(self.node_names)
        if names != b"null":
            return names
        nodes = self.nodes.items if self.nodes is not None else None
        return msgspec.json.encode([node.name for node in nodes or []])


@dataclass(frozen=True)
class FilterArgs:
    """What of it counts.

    Attributes:
        pod: the pod.
        names: the nodes' names, a JSON list as it came: they are thousands, and the allocator reads
            them.
    """

    pod: Pod
    names: bytes


_NAMES = b'"NodeNames":'


def filter_args(decode: Callable[[bytes], ExtenderArgs]) -> Callable[[bytes], FilterArgs]:
    """A reader that leaves names to the allocator where they come last, as Go writes them.

    kube-scheduler asks for priorities of the pod that it has just asked about: it is read once.

    Args:
        decode: reads the whole; raises ``InvalidValue``.
    """
    last: tuple[bytes, Pod] | None = None

    def read(body: bytes) -> FilterArgs:
        nonlocal last
        at = body.find(_NAMES)
        if at >= 0 and body.endswith(b"]}"):
            head, names = body[:at], body[at + len(_NAMES) : -1]
            if last is not None and last[0] == head:
                return FilterArgs(last[1], names)
            try:
                # If this is an object, then it is that last field's value which is left out.
                pod = decode(head + _NAMES + b"null}").pod
            except InvalidValue:
                pass
            else:
                last = head, pod
                return FilterArgs(pod, names)
        args = decode(body)
        return FilterArgs(args.pod, args.names())

    return read


class FilterResult(msgspec.Struct, rename="pascal"):
    """Where it fits (ExtenderFilterResult). ``error`` fails the whole attempt."""

    node_names: list[str] | None = None
    failed_nodes: dict[str, str] = {}
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""


class HostPriority(msgspec.Struct, rename="pascal"):
    """How good a node is, 0 to 10."""

    host: str
    score: int


class BindArgs(msgspec.Struct):
    """Asks to bind a pod (ExtenderBindingArgs)."""

    pod_name: str = msgspec.field(name="PodName")
    pod_namespace: str = msgspec.field(name="PodNamespace")
    pod_uid: str = msgspec.field(name="PodUID")
    node: str = msgspec.field(name="Node")

    def check_names(self) -> None:
        """They stand in paths of the API, where ``..`` is resolved, quoted or not.

        Raises:
            InvalidValue: one is no object's name.
        """
        check_object_name("PodNamespace", self.pod_namespace)
        check_object_name("PodName", self.pod_name)
        check_object_name("Node", self.node)


class BindResult(msgspec.Struct, rename="pascal"):
    """Whether it is bound; an error lets kube-scheduler try the pod again later."""

    error: str = ""


class MetaPod(msgspec.Struct):
    """A pod by its UID alone."""

    uid: str = msgspec.field(name="UID")


class MetaVictims(msgspec.Struct):
    """Whom to evict from a node so that a pod fits."""

    pods: list[MetaPod] | None = msgspec.field(name="Pods", default=None)
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class Victims(msgspec.Struct):
    """The same with whole pods: sent where the extender is not said to know them."""

    pods: list[Pod] | None = msgspec.field(name="Pods", default=None)
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class PreemptArgs(msgspec.Struct):
    """Asks whether evicting these would make room (ExtenderPreemptionArgs)."""

    pod: Pod = msgspec.field(name="Pod")
    victims: dict[str, Victims] | None = msgspec.field(name="NodeNameToVictims", default=None)
    meta_victims: dict[str, MetaVictims] | None = msgspec.field(
        name="NodeNameToMetaVictims", default=None
    )


class PreemptResult(msgspec.Struct):
    """The nodes where it would, and whom to evict there (ExtenderPreemptionResult)."""

    meta_victims: dict[str, MetaVictims] = msgspec.field(
        name="NodeNameToMetaVictims", default_factory=dict
    )
