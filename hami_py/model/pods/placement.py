"""Why kube-scheduler keeps a pod from a node, whatever cards are there.

``hami explain`` and ``hami what-if`` say it beside what the allocator says of cards. The rules are
those of kube-scheduler's plugins NodeUnschedulable, NodeName, TaintToleration and NodeAffinity:

- https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
- https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/

Its others are not here: processors, memory, ports, volumes, spreading, affinity to pods. Nor are
the operators Lt and Gt of tolerations, which are switched off unless somebody switches them on.
"""

import re
from collections.abc import Iterator, Mapping

from hami_py.model.names import legible
from hami_py.model.pods.constraints import Requirement, Taint, Term, Toleration
from hami_py.model.pods.objects import Node, Pod

_CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""Who tolerates this goes to cordoned nodes, too. The node controller adds it to them."""

_KEEPS_AWAY = ("NoSchedule", "NoExecute")

_INTEGER = re.compile(r"[+-]?[0-9]+")
_MOST = 1 << 63


def kept_away(pod: Pod, node: Node) -> tuple[str, ...]:
    """Why the pod cannot go to the node, each reason in a few words; empty: nothing of this."""
    return tuple(map(legible, _reasons(pod, node)))


def _reasons(pod: Pod, node: Node) -> Iterator[str]:
    tolerations = pod.spec.tolerations or ()
    cordoned = bool(node.spec.unschedulable) and not _tolerated(_CORDON, tolerations)
    if cordoned:
        yield "the node is cordoned"
    if pod.spec.node_name not in (None, "", node.name):
        yield f"spec.nodeName is {pod.spec.node_name}"
    for taint in node.spec.taints or ():
        # Said already.
        if cordoned and taint.key == _CORDON.key:
            continue
        if taint.effect in _KEEPS_AWAY and not _tolerated(taint, tolerations):
            yield f"taint {taint} is not tolerated"
    for label, value in (pod.spec.node_selector or {}).items():
        if node.labels.get(label) != value:
            yield f"nodeSelector wants {label}={value}, {_has(node.labels, label)}"
    yield from _unmet(pod, node)


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


def _unmet(pod: Pod, node: Node) -> Iterator[str]:
    """One term of a required affinity is enough; one that asks for nothing is met by no node."""
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    required = affinity and affinity.required_during_scheduling_ignored_during_execution
    if not required:
        return
    terms = required.node_selector_terms or ()
    failed = [list(_failed(term, node)) for term in terms]
    if all(failed):
        wanted = " or ".join(" and ".join(each) for each in failed)
        yield f"nodeAffinity wants {wanted or 'nothing that a node has'}"


def _failed(term: Term, node: Node) -> Iterator[str]:
    """The requirements that a node does not meet."""
    expressions, fields = term.match_expressions or (), term.match_fields or ()
    if not expressions and not fields:
        yield "nothing that a node has"
    for requirement in expressions:
        if not _is_met(requirement, node.labels):
            yield f"{_written(requirement)}, {_has(node.labels, requirement.key)}"
    for requirement in fields:
        # Fields know these two operators alone, with one value.
        known = requirement.operator in ("In", "NotIn") and len(requirement.values or ()) == 1
        if not known or not _is_met(requirement, {"metadata.name": node.name}):
            yield _written(requirement)


def _is_met(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(requirement.key), requirement.values or ()
    there = value is not None
    # With how many values an operator goes: with others kube-scheduler cannot read the term.
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
    """-1, 0 or 1 as the one is less, equal or more; 0 also where one is no integer of 64 bits."""
    one, two = _integer(value or ""), _integer(other)
    return 0 if one is None or two is None else (one > two) - (one < two)


def _integer(text: str) -> int | None:
    # Python itself would take spaces, underscores and the digits of other scripts, too.
    if len(text) > 64 or not _INTEGER.fullmatch(text):
        return None
    return number if -_MOST <= (number := int(text)) < _MOST else None


def _written(requirement: Requirement) -> str:
    values = f" {', '.join(requirement.values)}" if requirement.values else ""
    return f"{requirement.key} {requirement.operator}{values}"


def _has(labels: Mapping[str, str], label: str) -> str:
    return f"and it is {labels[label]}" if label in labels else "and there is no such label"
