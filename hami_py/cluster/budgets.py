"""Disruption budgets: how many pods an eviction may still disrupt.

kube-scheduler may violate a budget when nothing else makes room, and it counts violations. The
extender adds victims of its own, so it counts in the same way: an evicted pod uses up one
disruption of each budget that selects it, and violates those that had none left. There is one
difference: an empty selector selects all pods, as the API defines it; kube-scheduler ignores it.

The source is ``filterPodsWithPDBViolation`` in kube-scheduler's plugin DefaultPreemption (1.36.3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from hami_py.cluster.pods import Placed
from hami_py.cluster.shared import SharedState
from hami_py.kube import Undecoded
from hami_py.kube.followed import Naming

BUDGETS = "/apis/policy/v1/poddisruptionbudgets"


class _Requirement(msgspec.Struct, frozen=True):
    """``LabelSelectorRequirement``."""

    key: str
    operator: str
    values: tuple[str, ...] | None = None

    def selects(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        listed = value in (self.values or ())
        return {
            "In": value is not None and listed,
            "NotIn": value is None or not listed,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }.get(self.operator, False)


class _Selector(msgspec.Struct, frozen=True, rename="camel"):
    """``LabelSelector``; an empty one selects all."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[_Requirement, ...] | None = None

    def selects(self, labels: Mapping[str, str]) -> bool:
        return (self.match_labels or {}).items() <= labels.items() and all(
            requirement.selects(labels) for requirement in self.match_expressions or ()
        )


class _Spec(msgspec.Struct, frozen=True):
    """``PodDisruptionBudgetSpec``; without a selector it selects none."""

    selector: _Selector | None = None


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    """``PodDisruptionBudgetStatus``; the API server has counted ``disrupted_pods`` already."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, object] | None = None


class Budget(msgspec.Struct, frozen=True):
    """``PodDisruptionBudget``: the fields that we read."""

    metadata: Naming
    spec: _Spec = _Spec()
    status: _Status = _Status()


class BudgetSink:
    """Budgets, by namespace and name.

    Until they were listed once, no pod is evicted. kube-scheduler has no event that ends this wait,
    so the requeuer is notified.
    """

    def __init__(self, shared: SharedState) -> None:
        self.is_listed = False
        self._shared = shared
        self._known: dict[str, dict[str, Budget]] = {}

    def remaining(self) -> Remaining:
        """The disruptions that are left, before any eviction."""
        return Remaining(self._known)

    def replace(self, budgets: list[Budget], undecoded: Sequence[Undecoded] = ()) -> None:
        """Takes a whole list of budgets; budgets that are not in it were deleted."""
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
            self._shared.requeuer.changed()

    def changed(self, budget: Budget) -> None:
        """Takes a budget that is new or changed."""
        namespace, name = _key(budget)
        self._known.setdefault(namespace, {})[name] = budget

    def undecoded(self, item: Undecoded) -> None:
        """Takes a budget that cannot be decoded: it stays as it was known, or selects no pod."""

    def deleted(self, budget: Budget | Undecoded) -> None:
        """Takes the deletion of a budget."""
        namespace, name = _key(budget)
        there = self._known.get(namespace, {})
        there.pop(name, None)
        if not there:
            self._known.pop(namespace, None)


class Remaining:
    """The disruptions that budgets still allow while pods are evicted one after the other."""

    def __init__(self, known: Mapping[str, Mapping[str, Budget]]) -> None:
        self._known = known
        self._evicted: Counter[tuple[str, str]] = Counter()

    def protects(self, pod: Placed) -> bool:
        """Whether evicting the pod would violate a budget."""
        return any(self._remaining(budget) < 1 for budget in self._selecting(pod))

    def evict(self, pod: Placed) -> bool:
        """Counts the pod as evicted; returns whether that violates a budget."""
        violates = self.protects(pod)
        self._evicted.update(_key(budget) for budget in self._selecting(pod))
        return violates

    def _remaining(self, budget: Budget) -> int:
        return budget.status.disruptions_allowed - self._evicted[_key(budget)]

    def _selecting(self, pod: Placed) -> Iterator[Budget]:
        # A copy: the watch changes the dict meanwhile.
        for budget in tuple(self._known.get(pod.namespace, {}).values()):
            selector = budget.spec.selector
            counted = pod.name in (budget.status.disrupted_pods or {})
            if selector is not None and not counted and selector.selects(pod.labels):
                yield budget


def _key(budget: Budget | Undecoded) -> tuple[str, str]:
    return budget.metadata.namespace or "", budget.metadata.name
