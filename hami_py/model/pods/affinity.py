"""Why kube-scheduler excludes a node for a pod, apart from cards: cordon, taints, affinity.

``hami explain`` and ``hami what-if`` report it beside the allocator's reasons. The rules are those
of kube-scheduler's plugins NodeUnschedulable, NodeName, TaintToleration and NodeAffinity:

- https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
- https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/

Its other plugins are not covered: processors, memory, ports, volumes, spreading, affinity to pods.
The operators Lt and Gt of tolerations are not either; they are off by default.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hami_py.model.names import legible
from hami_py.model.pods.objects import Node, Pod, Requirement, Taint, Term, Toleration

_CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""The taint of cordoned nodes, set by the node controller; a pod may tolerate it."""

_EXCLUDING = ("NoSchedule", "NoExecute")

_INTEGER = re.compile(r"[+-]?[0-9]+")
_MAX = 1 << 63


@dataclass(frozen=True)
class Exclusion:
    """A reason why kube-scheduler excludes a node for a pod.

    Attributes:
        text: the reason, with what the node has.
        brief: the same for all nodes that have this reason.
        is_selection: the pod itself selects other nodes.
    """

    text: str
    brief: str
    is_selection: bool = False


def exclusions(pod: Pod, node: Node) -> tuple[Exclusion, ...]:
    """The reasons why kube-scheduler excludes the node for the pod; empty = it does not."""
    return (*_closed(pod, node), *_unselected(pod, node))


def exclusion_reasons(pod: Pod, node: Node) -> tuple[str, ...]:
    """The texts of ``exclusions``."""
    return tuple(each.text for each in exclusions(pod, node))


def _closed(pod: Pod, node: Node) -> Iterator[Exclusion]:
    """The reasons that the node has."""
    tolerations = pod.spec.tolerations or ()
    cordoned = bool(node.spec.unschedulable) and not _tolerated(_CORDON, tolerations)
    if cordoned:
        yield Exclusion("the node is cordoned", "the node is cordoned")
    for taint in node.spec.taints or ():
        # The cordon is reported already.
        if cordoned and taint.key == _CORDON.key:
            continue
        if taint.effect in _EXCLUDING and not _tolerated(taint, tolerations):
            text = legible(f"taint {taint} is not tolerated")
            yield Exclusion(text, text)


def _unselected(pod: Pod, node: Node) -> Iterator[Exclusion]:
    """The reasons that the pod has."""
    if pod.spec.node_name not in (None, "", node.name):
        yield _selection(f"spec.nodeName is {pod.spec.node_name}")
    for label, value in (pod.spec.node_selector or {}).items():
        if node.labels.get(label) != value:
            required = f"nodeSelector requires {label}={value}"
            yield _selection(required, f", {_has(node.labels, label)}")
    yield from _unmet(pod, node)


def _selection(brief: str, has: str = "") -> Exclusion:
    return Exclusion(legible(brief + has), legible(brief), is_selection=True)


def _tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    equal = (toleration.value or "") == (taint.value or "")
    return (toleration.operator or "Equal") == "Equal" and equal


def _unmet(pod: Pod, node: Node) -> Iterator[Exclusion]:
    """One matching term of a required affinity suffices; an empty term matches no node."""
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    required = affinity and affinity.required_during_scheduling_ignored_during_execution
    if not required:
        return
    terms = required.node_selector_terms or ()
    failed = [list(_failed(term, node)) for term in terms]
    if all(failed):
        wanted = " or ".join(" and ".join(each) for each in failed)
        text = f"nodeAffinity requires {wanted or 'nothing that a node has'}"
        yield Exclusion(legible(text), "nodeAffinity excludes the node", is_selection=True)


def _failed(term: Term, node: Node) -> Iterator[str]:
    """The requirements that a node does not meet."""
    expressions, fields = term.match_expressions or (), term.match_fields or ()
    if not expressions and not fields:
        yield "nothing that a node has"
    for requirement in expressions:
        if not _is_met(requirement, node.labels):
            yield f"{_written(requirement)}, {_has(node.labels, requirement.key)}"
    for requirement in fields:
        # matchFields supports only these two operators, with one value.
        known = requirement.operator in ("In", "NotIn") and len(requirement.values or ()) == 1
        if not known or not _is_met(requirement, {"metadata.name": node.name}):
            yield _written(requirement)


def _is_met(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(requirement.key), requirement.values or ()
    there = value is not None
    # Each operator needs its number of values; kube-scheduler rejects a term with another number.
    met = {
        "In": bool(values) and value in values,
        "NotIn": bool(values) and value not in values,
        "Exists": not values and there,
        "DoesNotExist": not values and not there,
        "Gt": len(values) == 1 and _compare(value, values[0]) > 0,
        "Lt": len(values) == 1 and _compare(value, values[0]) < 0,
    }
    return met.get(requirement.operator, False)


def _compare(value: str | None, other: str) -> int:
    """-1, 0 or 1 for less, equal or more; 0 also if one of them is not a 64-bit integer."""
    one, two = _integer(value or ""), _integer(other)
    return 0 if one is None or two is None else (one > two) - (one < two)


def _integer(text: str) -> int | None:
    # int() also accepts spaces, underscores and the digits of other scripts.
    if len(text) > 64 or not _INTEGER.fullmatch(text):
        return None
    return number if -_MAX <= (number := int(text)) < _MAX else None


def _written(requirement: Requirement) -> str:
    values = f" {', '.join(requirement.values)}" if requirement.values else ""
    return f"{requirement.key} {requirement.operator}{values}"


def _has(labels: Mapping[str, str], label: str) -> str:
    return f"and it is {labels[label]}" if label in labels else "and there is no such label"
