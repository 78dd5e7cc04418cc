"""The whole cluster: the allocator, and the sinks that keep it up to date.

The allocator learns from a node's annotation which cards the node has (the node agent writes it),
from a bound pod's annotation which cards the pod has (its binding writes it), and from quotas what
a namespace may use. Pods that request no card are ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hami_py.cluster.budgets import BudgetSink
from hami_py.cluster.nodes import NodeSink
from hami_py.cluster.pods import PodSink
from hami_py.cluster.preemptors import Preemptors
from hami_py.cluster.quotas import QuotaSink
from hami_py.cluster.requeue import Requeuer
from hami_py.cluster.shared import SharedState
from hami_py.cluster.waiting import WaitingPods
from hami_py.model import pods

if TYPE_CHECKING:
    from hami_py._native import Allocator

NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"
QUOTAS = "/api/v1/resourcequotas"


class Cluster(SharedState):
    """The allocator, the sinks that feed it, and the requests of pods that are not bound yet.

    Attributes:
        nodes: takes the changes of nodes, as ``pods``, ``quotas`` and ``budgets`` take theirs.
    """

    def __init__(
        self, allocator: Allocator, settings: pods.PodSettings, requeuer: Requeuer | None = None
    ) -> None:
        super().__init__(allocator, settings, requeuer)
        self.waiting = WaitingPods()
        self.nodes = NodeSink(self)
        self.preemptors = Preemptors(self.allocator, self.requeuer)
        self.pods = PodSink(self, self.nodes, self.waiting, self.preemptors)
        self.quotas = QuotaSink(self)
        self.budgets = BudgetSink(self)

    @property
    def is_known(self) -> bool:
        """Whether nodes, pods and quotas were each listed once.

        Before that, full cards would look empty. Disruption budgets are not needed for this: only
        preemption reads them.
        """
        return self.nodes.is_listed and self.pods.is_listed and self.quotas.is_listed
