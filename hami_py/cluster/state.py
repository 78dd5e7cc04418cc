"""The whole cluster: the allocator, and the sinks that keep it up to date.

The allocator learns from a node's annotation which cards the node has (the node agent writes it),
from a bound pod's annotation which cards the pod has (its binding writes it), and from quotas what
a namespace may use. Pods that request no card are ignored.
"""

from __future__ import annotations

import logging

from hami_py._native import Allocator
from hami_py.cluster.budgets import BudgetSink
from hami_py.cluster.nodes import NodeSink
from hami_py.cluster.pods import PodSink
from hami_py.cluster.preemptors import Preemptors
from hami_py.cluster.quotas import QuotaSink
from hami_py.cluster.requeue import Requeuer
from hami_py.cluster.waiting import WaitingPods
from hami_py.errors import HamiError
from hami_py.model import pods

_log = logging.getLogger(__name__)

NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"
QUOTAS = "/api/v1/resourcequotas"


class Cluster:
    """The allocator, the sinks that feed it, and the requests of pods that are not bound yet.

    Attributes:
        allocator: the engine. It locks itself, so threads may call it at the same time.
        requeuer: notified of every change that may make room for a refused pod.
        invalid_objects: the number of invalid annotations and requests so far.
        nodes: takes the changes of nodes, as ``pods``, ``quotas`` and ``budgets`` take theirs.
    """

    def __init__(
        self, allocator: Allocator, settings: pods.PodSettings, requeuer: Requeuer | None = None
    ) -> None:
        self.allocator = allocator
        self.settings = settings
        self.requeuer = requeuer or Requeuer()
        self.invalid_objects = 0
        self.waiting = WaitingPods()
        self.nodes = NodeSink(self)
        self.preemptors = Preemptors(self.allocator, self.requeuer)
        self.pods = PodSink(self)
        self.quotas = QuotaSink(self)
        self.budgets = BudgetSink(self)

    def report_invalid(self, what: str, error: HamiError) -> None:
        """Logs and counts an object that is invalid and therefore left out."""
        self.invalid_objects += 1
        _log.warning("%s: %s", what, error)

    @property
    def is_known(self) -> bool:
        """Whether nodes, pods and quotas were each listed once.

        Before that, full cards would look empty. Disruption budgets are not needed for this: only
        preemption reads them.
        """
        return self.nodes.is_listed and self.pods.is_listed and self.quotas.is_listed
