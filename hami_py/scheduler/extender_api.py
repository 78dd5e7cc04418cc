"""The requests of kube-scheduler to an extender, and the responses that it expects.

The types are those of ``k8s.io/kube-scheduler/extender/v1``. Its Go structs have no JSON tags, so
every field has its Go name. Recorded requests are in ``tests/cluster/recordings``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from hami_py.errors import InvalidValue
from hami_py.model import check_object_name
from hami_py.model.pods.objects import Node, Pod


class NodeList(msgspec.Struct, omit_defaults=True):
    """A list of whole nodes; kube-scheduler sends it unless the extender caches nodes."""

    items: list[Node] | None = None


_NO_NAMES = msgspec.Raw(b"null")


class ExtenderArgs(msgspec.Struct):
    """A request to filter or score nodes for a pod."""

    pod: Pod = msgspec.field(name="Pod")
    nodes: NodeList | None = msgspec.field(name="Nodes", default=None)
    node_names: msgspec.Raw = msgspec.field(name="NodeNames", default=_NO_NAMES)

    def names(self) -> bytes:
        """The nodes' names as JSON. It is a list unless the request is invalid."""
        names = bytes(self.node_names)
        if names != b"null":
            return names
        nodes = self.nodes.items if self.nodes is not None else None
        return msgspec.json.encode([node.name for node in nodes or []])


@dataclass(frozen=True)
class FilterArgs:
    """The fields of ExtenderArgs that we use.

    Attributes:
        names: the nodes' names, still as a JSON list: there are thousands, and the allocator
            decodes them.
    """

    pod: Pod
    names: bytes


_NAMES = b'"NodeNames":'


def filter_args(decode: Callable[[bytes], ExtenderArgs]) -> Callable[[bytes], FilterArgs]:
    """A decoder that leaves the names to the allocator if they come last, as Go writes them.

    kube-scheduler scores nodes for the pod that it has just filtered; that pod is decoded once.
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
                # If this is valid JSON, then exactly the last field's value is replaced.
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
    """The nodes that fit (ExtenderFilterResult). ``error`` fails the whole attempt."""

    node_names: list[str] | None = None
    failed_nodes: dict[str, str] = {}
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""


class HostPriority(msgspec.Struct, rename="pascal"):
    """A node's score, 0 to 10."""

    host: str
    score: int


class BindArgs(msgspec.Struct):
    """A request to bind a pod (ExtenderBindingArgs)."""

    pod_name: str = msgspec.field(name="PodName")
    pod_namespace: str = msgspec.field(name="PodNamespace")
    pod_uid: str = msgspec.field(name="PodUID")
    node: str = msgspec.field(name="Node")

    def check_names(self) -> None:
        """Checks the names: they become parts of API paths, where ``..`` would be resolved.

        Raises:
            InvalidValue: one of them cannot be the name of an object.
        """
        check_object_name("PodNamespace", self.pod_namespace)
        check_object_name("PodName", self.pod_name)
        check_object_name("Node", self.node)


class BindResult(msgspec.Struct, rename="pascal"):
    """Whether the pod is bound; after an error kube-scheduler tries the pod again later."""

    error: str = ""


class MetaPod(msgspec.Struct):
    """A pod by its UID alone."""

    uid: str = msgspec.field(name="UID")


class MetaVictims(msgspec.Struct):
    """The pods to evict from a node so that a pod fits."""

    pods: list[MetaPod] | None = msgspec.field(name="Pods", default=None)
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class Victims(msgspec.Struct):
    """The same with whole pods; kube-scheduler sends it unless the extender caches nodes."""

    pods: list[Pod] | None = msgspec.field(name="Pods", default=None)
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class PreemptArgs(msgspec.Struct):
    """A request to check victims for a preemption (ExtenderPreemptionArgs)."""

    pod: Pod = msgspec.field(name="Pod")
    victims: dict[str, Victims] | None = msgspec.field(name="NodeNameToVictims", default=None)
    meta_victims: dict[str, MetaVictims] | None = msgspec.field(
        name="NodeNameToMetaVictims", default=None
    )


class PreemptResult(msgspec.Struct):
    """The nodes where a preemption helps, and its victims there (ExtenderPreemptionResult)."""

    meta_victims: dict[str, MetaVictims] = msgspec.field(
        name="NodeNameToMetaVictims", default_factory=dict
    )
