"""Reasons other than cards that exclude a pod from a node, by kube-scheduler's documented rules."""

from typing import Any

import pytest

from hami_py.model import pods
from unit.pods import build

Object = dict[str, Any]


def kept(spec: Object, labels: Object | None = None, **node: Any) -> tuple[str, ...]:
    """Why a pod is kept from node ``n1``."""
    there = {"metadata": {"name": "n1", "labels": labels}, "spec": node}
    pod = build.pod(build.container(), **spec)
    return pods.exclusion_reasons(pod, pods.decode_node.convert(there))


def taint(key: str = "gpu", value: str | None = None, effect: str = "NoSchedule") -> Object:
    return {"key": key, "value": value, "effect": effect}


#: A node's taint, a pod's toleration, whether the one lets the other in. The first ones are those
#: of https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
TOLERATIONS = [
    (taint("key1", "value1"), {"key": "key1", "operator": "Equal", "value": "value1"}, True),
    (taint("key1", "value1"), {"key": "key1", "value": "value1", "effect": "NoSchedule"}, True),
    (taint("key1", "value1"), {"key": "key1", "operator": "Exists", "effect": "NoSchedule"}, True),
    (taint("key1", "value1"), {"key": "key1", "value": "value2"}, False),
    (taint("key1", "value1"), {"key": "key2", "operator": "Exists"}, False),
    (taint("key1", "value1"), {"key": "key1", "operator": "Exists", "effect": "NoExecute"}, False),
    # "An empty key with operator Exists matches all keys, values and effects."
    (taint("key1", "value1", "NoExecute"), {"operator": "Exists"}, True),
    (taint("key1", "value1", "NoExecute"), {"operator": "Exists", "effect": "NoSchedule"}, False),
    # "An empty effect matches all effects with key key1."
    (taint("key1", None, "NoExecute"), {"key": "key1", "operator": "Exists"}, True),
    (taint("key1", None), {"key": "key1"}, True),
    (taint("key1", ""), {"key": "key1", "operator": None, "value": None}, True),
    (taint("key1", None), {"key": "key1", "value": "x"}, False),
    # For so long only; that is no matter when a node is chosen.
    (
        taint("key1", None, "NoExecute"),
        {"key": "key1", "operator": "Exists", "tolerationSeconds": 3},
        True,
    ),
    # Unknown operators admit no pod.
    (taint("key1", "5"), {"key": "key1", "operator": "Lt", "value": "9"}, False),
    (taint("key1", "5"), {"key": "key1", "operator": "exists"}, False),
]


@pytest.mark.parametrize(("there", "toleration", "is_in"), TOLERATIONS)
def test_tolerations(there: Object, toleration: Object, *, is_in: bool) -> None:
    why = kept({"tolerations": [toleration]}, taints=[there])
    assert bool(why) is not is_in, why


def test_prefer_no_schedule_taints_exclude_no_pod() -> None:
    assert kept({}, taints=[taint(effect="PreferNoSchedule")]) == ()
    assert kept({}, taints=None) == ()


def test_every_taint_has_to_be_tolerated() -> None:
    """The page's example: three taints, two tolerations."""
    taints = [
        taint("key1", "value1"),
        taint("key1", "value1", "NoExecute"),
        taint("key2", "value2"),
    ]
    tolerations = [
        {"key": "key1", "operator": "Equal", "value": "value1", "effect": effect}
        for effect in ("NoSchedule", "NoExecute")
    ]
    assert kept({"tolerations": tolerations}, taints=taints) == (
        "taint key2=value2:NoSchedule is not tolerated",
    )


CORDON = "node.kubernetes.io/unschedulable"


def test_a_cordoned_node_and_pods_that_tolerate_it() -> None:
    # kubectl writes the field, the node controller the taint: it is one thing.
    cordoned = {"unschedulable": True, "taints": [taint(CORDON)]}
    assert kept({}, unschedulable=True) == ("the node is cordoned",)
    assert kept({}, **cordoned) == ("the node is cordoned",)
    for toleration in (
        {"operator": "Exists"},
        {"key": CORDON, "operator": "Exists", "effect": "NoSchedule"},
        {"key": CORDON},
    ):
        assert kept({"tolerations": [toleration]}, **cordoned) == ()
    evicted = {"key": CORDON, "operator": "Exists", "effect": "NoExecute"}
    assert kept({"tolerations": [evicted]}, **cordoned) == ("the node is cordoned",)
    # The taint alone, as in the moment after `kubectl uncordon`.
    assert kept({}, unschedulable=False, taints=[taint(CORDON)]) == (
        f"taint {CORDON}:NoSchedule is not tolerated",
    )


def test_node_selectors() -> None:
    wanted = {"nodeSelector": {"disk": "ssd", "zone": "a"}}
    assert kept(wanted, {"disk": "ssd", "zone": "a", "more": "x"}) == ()
    assert kept(wanted, {"disk": "hdd"}) == (
        "nodeSelector requires disk=ssd, and it is hdd",
        "nodeSelector requires zone=a, and there is no such label",
    )
    assert kept({"nodeSelector": {"gpu": ""}}, {}) == (
        "nodeSelector requires gpu=, and there is no such label",
    )
    assert kept({"nodeSelector": {"gpu": ""}}, {"gpu": ""}) == ()
    assert kept({"nodeSelector": {}}) == kept({"nodeSelector": None}) == ()


def test_node_names() -> None:
    assert kept({"nodeName": "n1"}) == kept({"nodeName": ""}) == ()
    assert kept({"nodeName": "n2"}) == ("spec.nodeName is n2",)


def affinity(*terms: Object) -> Object:
    required = {"nodeSelectorTerms": list(terms)}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    }


def wants(key: str, operator: str, *values: str) -> Object:
    return {"key": key, "operator": operator, "values": list(values)}


LABELS = {"zone": "a", "cards": "8", "empty": "", "word": "many", "low": "-3"}

REQUIREMENTS = [
    (wants("zone", "In", "a", "b"), True),
    (wants("zone", "In", "b", "c"), False),
    (wants("none", "In", "a"), False),
    (wants("empty", "In", ""), True),
    (wants("zone", "In"), False),
    (wants("zone", "NotIn", "b"), True),
    (wants("zone", "NotIn", "a"), False),
    # "NotIn and DoesNotExist" hold where there is no such label.
    (wants("none", "NotIn", "a"), True),
    (wants("none", "NotIn"), False),
    (wants("zone", "Exists"), True),
    (wants("empty", "Exists"), True),
    (wants("none", "Exists"), False),
    (wants("none", "DoesNotExist"), True),
    (wants("empty", "DoesNotExist"), False),
    # "The label's value is parsed as an integer."
    (wants("cards", "Gt", "7"), True),
    (wants("cards", "Gt", "8"), False),
    (wants("cards", "Gt", "10"), False),
    (wants("cards", "Lt", "10"), True),
    (wants("cards", "Lt", "8"), False),
    (wants("low", "Lt", "-2"), True),
    (wants("low", "Gt", "-4"), True),
    (wants("cards", "Gt", "+7"), True),
    (wants("none", "Gt", "1"), False),
    (wants("none", "Lt", "1"), False),
    (wants("word", "Gt", "1"), False),
    (wants("word", "Lt", "1"), False),
    (wants("cards", "Gt", "few"), False),
    (wants("cards", "Gt", "1", "2"), False),
    (wants("cards", "Gt", " 7"), False),
    (wants("cards", "Lt", "1_0"), False),
    (wants("cards", "Lt", str(1 << 63)), False),
    (wants("cards", "Lt", str((1 << 63) - 1)), True),
    (wants("cards", "Lt", "9" * 10_000), False),
    (wants("zone", "Equals", "a"), False),
]


@pytest.mark.parametrize(("requirement", "is_met"), REQUIREMENTS)
def test_requirements(requirement: Object, *, is_met: bool) -> None:
    why = kept(affinity({"matchExpressions": [requirement]}), LABELS)
    assert bool(why) is not is_met, why


FIELDS = [
    (wants("metadata.name", "In", "n1"), True),
    (wants("metadata.name", "In", "n2"), False),
    (wants("metadata.name", "NotIn", "n2"), True),
    (wants("metadata.name", "NotIn", "n1"), False),
    (wants("metadata.name", "In", "n1", "n2"), False),
    (wants("metadata.name", "Exists"), False),
]


@pytest.mark.parametrize(("requirement", "is_met"), FIELDS)
def test_fields(requirement: Object, *, is_met: bool) -> None:
    why = kept(affinity({"matchFields": [requirement]}))
    assert bool(why) is not is_met, why


def test_one_matching_term_is_enough_and_all_its_requirements_count() -> None:
    zone = {"matchExpressions": [wants("zone", "In", "b"), wants("cards", "Gt", "4")]}
    name = {"matchFields": [wants("metadata.name", "In", "n1")]}
    assert kept(affinity(zone, name), LABELS) == ()
    assert kept(affinity(zone), LABELS) == ("nodeAffinity requires zone In b, and it is a",)
    both = {**zone, **name}
    assert kept(affinity(both), {**LABELS, "zone": "b"}) == ()
    assert kept(affinity(both), {"zone": "b"}) == (
        "nodeAffinity requires cards Gt 4, and there is no such label",
    )
    other = {"matchFields": [wants("metadata.name", "In", "n2")]}
    assert kept(affinity(zone, other), LABELS) == (
        "nodeAffinity requires zone In b, and it is a or metadata.name In n2",
    )


def test_an_empty_term_matches_no_node() -> None:
    assert kept(affinity({})) == kept(affinity()) != ()
    assert kept(affinity({"matchExpressions": None, "matchFields": []})) != ()
    assert kept(affinity({}, {"matchExpressions": [wants("zone", "Exists")]}), LABELS) == ()


def test_selector_and_affinity_both_count() -> None:
    asked = {**affinity({"matchExpressions": [wants("zone", "In", "a")]})}
    assert kept({**asked, "nodeSelector": {"disk": "ssd"}}, LABELS) != ()
    assert kept({**asked, "nodeSelector": {"cards": "8"}}, LABELS) == ()


def test_preferences_and_pod_affinity_are_ignored() -> None:
    preferred = {"preference": {"matchExpressions": [wants("zone", "In", "b")]}, "weight": 1}
    said = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}}
    assert kept({"affinity": said}, LABELS) == ()
    assert kept({"affinity": {"podAntiAffinity": {"x": 1}}}, LABELS) == ()
    assert kept({"affinity": None}) == ()


def test_all_reasons_are_listed_each_on_one_line() -> None:
    asked = {**affinity({"matchExpressions": [wants("zone", "In", "b\n\x1b[2J")]}), "nodeName": "x"}
    why = kept(asked, LABELS, unschedulable=True, taints=[taint()])
    assert len(why) == 4
    assert all(each.isprintable() for each in why)
