"""Where a pod may go, as pods and nodes say it to kube-scheduler: the fields, typed.

The rules are in ``placement``. Operators and effects are text: a new one must not make a pod or a
node unreadable.
"""

from hami_py.model.pods.decoding import ApiObject


class Toleration(ApiObject, frozen=True):
    """``Toleration``."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class Requirement(ApiObject, frozen=True):
    """``NodeSelectorRequirement``."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class Term(ApiObject, frozen=True):
    """``NodeSelectorTerm``."""

    match_expressions: tuple[Requirement, ...] | None = None
    match_fields: tuple[Requirement, ...] | None = None


class NodeSelector(ApiObject, frozen=True):
    """``NodeSelector``."""

    node_selector_terms: tuple[Term, ...] | None = None


class NodeAffinity(ApiObject, frozen=True):
    """``NodeAffinity``; what is only preferred keeps no pod away."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class Affinity(ApiObject, frozen=True):
    """``Affinity``; that to other pods is not looked at."""

    node_affinity: NodeAffinity | None = None


class Taint(ApiObject, frozen=True):
    """``Taint``."""

    key: str = ""
    value: str | None = None
    effect: str = ""

    def __str__(self) -> str:
        """As kubectl writes it."""
        value = f"={self.value}" if self.value else ""
        return f"{self.key}{value}:{self.effect}"


class NodeSpec(ApiObject, frozen=True):
    """``NodeSpec``."""

    unschedulable: bool | None = None
    taints: tuple[Taint, ...] | None = None
