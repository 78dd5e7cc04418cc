"""Disruption budgets: how many pods may go, for those that a preemption has to add.

A budget may be violated by a preemption; kube-scheduler does so where nothing else makes room, and
counts it. This follows its reckoning: a pod uses up one of each budget that selects it, and
violates those that had none left. An empty selector takes all, as the API has it; kube-scheduler
passes it over.

``filterPodsWithPDBViolation`` of kube-scheduler's plugin DefaultPreemption (1.36.3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from hami_py.kube import Undecoded

__all__ = ["BUDGETS", "Budget", "BudgetSink", "Disrupted", "Left"]

BUDGETS = "/apis/policy/v1/poddisruptionbudgets"


class _Requirement(msgspec.Struct, frozen=True):
    """``LabelSelectorRequirement``."""

    key: str
    operator: str
    values: tuple[str, ...] | None = None

    def takes(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        listed = value in (self.values or ())
        return {
            "In": value is not None and listed,
            "NotIn": value is None or not listed,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }.get(self.operator, False)


class _Selector(msgspec.Struct, frozen=True, rename="camel"):
    """``LabelSelector``; an empty one takes all."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[_Requirement, ...] | None = None

    def takes(self, labels: Mapping[str, str]) -> bool:
        return (self.match_labels or {}).items() <= labels.items() and all(
            requirement.takes(labels) for requirement in self.match_expressions or ()
        )


class _Metadata(msgspec.Struct, frozen=True):
    """``ObjectMeta``."""

    name: str = ""
    namespace: str = ""


class _Spec(msgspec.Struct, frozen=True):
    """``PodDisruptionBudgetSpec``; without a selector it takes none."""

    selector: _Selector | None = None


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    """``PodDisruptionBudgetStatus``; ``disrupted_pods`` were let go and have been counted."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, object] | None = None


class Budget(msgspec.Struct, frozen=True):
    """``PodDisruptionBudget``: the fields that we read."""

    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


class Disrupted(Protocol):
    """A pod that would go."""

    @property
    def namespace(self) -> str:
        """Its namespace."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""


class BudgetSink:
    """Budgets, by namespace and name.

    Args:
        listed: told once they are known: until then nobody is evicted, and who waits for that is
            not heard of otherwise.
    """

    def __init__(self, listed: Callable[[], None]) -> None:
        self.is_listed = False
        self._listed = listed
        self._known: dict[str, dict[str, Budget]] = {}

    def left(self) -> Left:
        """What may still go, before anybody does."""
        return Left(self._known)

    def replace(self, budgets: list[Budget], undecoded: Sequence[Undecoded] = ()) -> None:
        """These are all the budgets."""
        known: dict[str, dict[str, Budget]] = {}
        for item in undecoded:
            namespace, name = _key(item)
            if name in self._known.get(namespace, {}):
                known.setdefault(namespace, {})[name] = self._known[namespace][name]
        self._known = known
        for budget in budgets:
            self.changed(budget)
        if not self.is_listed:
            self.is_listed = True
            self._listed()

    def changed(self, budget: Budget) -> None:
        """A budget came or changed."""
        namespace, name = _key(budget)
        self._known.setdefault(namespace, {})[name] = budget

    def undecoded(self, item: Undecoded) -> None:
        """A budget is there and cannot be decoded: it is as it was known, or selects nobody."""

    def gone(self, budget: Budget | Undecoded) -> None:
        """A budget was deleted."""
        namespace, name = _key(budget)
        there = self._known.get(namespace, {})
        there.pop(name, None)
        if not there:
            self._known.pop(namespace, None)


class Left:
    """What budgets allow while pods go, one after the other."""

    def __init__(self, known: Mapping[str, Mapping[str, Budget]]) -> None:
        self._known = known
        self._gone: Counter[tuple[str, str]] = Counter()

    def protects(self, pod: Disrupted) -> bool:
        """Whether the pod's going would violate a budget."""
        return any(self._left(budget) < 1 for budget in self._selecting(pod))

    def spend(self, pod: Disrupted) -> bool:
        """The pod goes. Whether that violates a budget."""
        violates = self.protects(pod)
        self._gone.update(_key(budget) for budget in self._selecting(pod))
        return violates

    def _left(self, budget: Budget) -> int:
        return budget.status.disruptions_allowed - self._gone[_key(budget)]

    def _selecting(self, pod: Disrupted) -> Iterator[Budget]:
        # A copy: the watch goes on.
        for budget in tuple(self._known.get(pod.namespace, {}).values()):
            selector = budget.spec.selector
            counted = pod.name in (budget.status.disrupted_pods or {})
            if selector is not None and not counted and selector.takes(pod.labels):
                yield budget


def _key(budget: Budget | Undecoded) -> tuple[str, str]:
    return budget.metadata.namespace or "", budget.metadata.name
