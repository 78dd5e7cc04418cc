"""The victims that a preemption adds beside disruption budgets, and the reported violations."""

from __future__ import annotations

import msgspec
import pytest

from hami_py.cluster.budgets import Budget
from hami_py.kube.followed import Naming, Undecoded
from hami_py.scheduler.extender_api import MetaPod, MetaVictims, PreemptArgs
from unit.scheduler.small import Object, Small

WEB = {"app": "web"}


def stand(*protected: str) -> Small:
    """A card of 10,000 MiB with `one`, `two` and `three`, of 3000 each; some have the label."""
    small = Small(nodes="a").listed()
    for name in ("one", "two", "three"):
        small.create(name, 3000, labels=WEB if name in protected else {})
        small.told(name)
        assert small.bind(name, "a") == ""
        small.told(name)
    return small


def budget(small: Small, allowed: int, name: str = "b", **more: Object) -> Budget:
    """A budget, as the watch tells of it."""
    made = {
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"selector": {"matchLabels": WEB}},
        "status": {"disruptionsAllowed": allowed},
    }
    told = msgspec.convert({**made, **more}, Budget)
    small.cluster.budgets.changed(told)
    return told


def preempted(small: Small, *chosen: str, violations: int = 0) -> tuple[set[str], int]:
    """The victims for a pod of 7000 MiB, which replaces two, and the reported violations."""
    small.create("urgent", 7000)
    small.server.pods["urgent"]["spec"]["priority"] = 1000
    victims = MetaVictims([MetaPod(f"uid-{name}") for name in chosen], violations)
    asked = PreemptArgs(small.seen("urgent"), meta_victims={"a": victims})
    answer = small.verbs.preempt(asked).meta_victims["a"]
    return {pod.uid.removeprefix("uid-") for pod in answer.pods or []}, answer.num_pdb_violations


@pytest.mark.parametrize("name", ["one", "three"])
def test_pods_without_a_budget_are_added_first(name: str) -> None:
    small = stand(name)
    budget(small, 0)
    (other,) = {"one", "three"} - {name}
    assert preempted(small, "two") == ({"two", other}, 0)


def test_if_all_are_protected_the_number_of_violations_is_returned() -> None:
    small = stand("one", "three")
    budget(small, 0)
    who, violations = preempted(small, "two", violations=3)
    assert (len(who), violations) == (2, 4)


def test_a_budget_that_allows_one_is_used_by_a_chosen_victim() -> None:
    small = stand("one", "two")
    budget(small, 1)
    assert preempted(small, "two") == ({"two", "three"}, 0)


def test_a_budget_that_allows_two_protects_no_pod() -> None:
    small = stand("one", "two", "three")
    budget(small, 2)
    assert preempted(small, "two")[1] == 0


def test_each_added_pod_counts_against_its_budget() -> None:
    small = stand("one", "two", "three")
    budget(small, 1)
    who, violations = preempted(small)
    assert (len(who), violations) == (2, 1)


SELECTORS: dict[str, tuple[Object, bool]] = {
    "all labels": ({"matchLabels": WEB}, True),
    "another value": ({"matchLabels": {"app": "db"}}, False),
    "one of two labels": ({"matchLabels": {**WEB, "tier": "1"}}, False),
    "everybody": ({}, True),
    "in": ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}, True),
    "not in": (
        {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]},
        False,
    ),
    "not in, without the label": (
        {"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["1"]}]},
        True,
    ),
    "exists": ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
    "does not exist": ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
}


@pytest.mark.parametrize("name", SELECTORS)
def test_a_budget_protects_the_pods_that_it_selects(name: str) -> None:
    selector, takes = SELECTORS[name]
    small = stand("one", "two", "three")
    budget(small, 0, spec={"selector": selector})
    assert preempted(small, "two")[1] == takes


def test_a_budget_protects_its_namespace_and_pods_not_counted_yet() -> None:
    small = stand("one", "two", "three")
    budget(small, 0, metadata={"name": "b", "namespace": "other"})
    budget(small, 0, "none", spec={})
    counted = {"one": "2026-01-01T00:00:00Z", "three": "2026-01-01T00:00:00Z"}
    budget(small, 0, "c", status={"disruptionsAllowed": 0, "disruptedPods": counted})
    assert preempted(small, "two")[1] == 0


def test_changed_labels_count() -> None:
    small = stand()
    budget(small, 0)
    small.server.pods["one"]["metadata"]["labels"] = WEB
    small.told("one")
    assert preempted(small, "two") == ({"two", "three"}, 0)


def test_a_deleted_budget_protects_no_pod() -> None:
    small = stand("one", "three")
    there = budget(small, 0)
    strange = Undecoded(Naming("b", "ml"), msgspec.Raw(b"{}"))
    # It can no longer be decoded, so its last state counts.
    small.cluster.budgets.undecoded(strange)
    small.cluster.budgets.replace([], [strange])
    assert preempted(small, "two")[1] == 1
    small.cluster.budgets.replace([])
    assert preempted(small, "two")[1] == 0
    small.cluster.budgets.replace([there])
    assert preempted(small, "two")[1] == 1
    small.cluster.budgets.deleted(there)
    small.cluster.budgets.deleted(there)
    assert preempted(small, "two")[1] == 0


def test_no_pod_is_evicted_before_budgets_are_known() -> None:
    small = stand()
    small.cluster.budgets.is_listed = False
    small.create("urgent", 7000, labels={})
    small.server.pods["urgent"]["spec"]["priority"] = 1000
    victims = {"a": MetaVictims([MetaPod("uid-one")])}
    asked = PreemptArgs(small.seen("urgent"), meta_victims=victims)
    assert small.verbs.preempt(asked).meta_victims == {}
