"""The cluster as the allocator sees it, kept so by watches.

Nodes say which cards they have (an annotation of the node agent's), bound pods which cards they
were given (an annotation of the binding's), quotas what a namespace may have. A pod that asks for
nothing of ours is not looked at; one that is not bound is remembered (``waiting``), so that its
request is known when kube-scheduler asks to bind it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hami_py.errors import HamiError
from hami_py.model import pods
from hami_py.scheduler.budgets import BudgetSink
from hami_py.scheduler.nodes import NodeSink
from hami_py.scheduler.pods import PodSink
from hami_py.scheduler.quotas import QuotaSink
from hami_py.scheduler.waiting import Waiting
from hami_py.scheduler.waking import Waker

if TYPE_CHECKING:
    from hami_py._native import Allocator

__all__ = ["NODES", "PODS", "QUOTAS", "Cluster"]

NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"
QUOTAS = "/api/v1/resourcequotas"

_log = logging.getLogger(__name__)


class Cluster:
    """The allocator, and the requests of pods that are not bound yet.

    Attributes:
        allocator: the engine. It has its own lock; its answers are whole.
        settings: how pods are read.
        nodes: takes what their watch tells, as do ``pods``, ``quotas`` and ``budgets``.
        waiting: pods that are not bound yet.
        waker: is told of what may make room.
        unreadable_objects: how many annotations and requests could not be read, so far.
    """

    def __init__(
        self, allocator: Allocator, settings: pods.PodSettings, waker: Waker | None = None
    ) -> None:
        self.allocator = allocator
        self.settings = settings
        self.waiting = Waiting()
        self.waker = waker or Waker()
        self.unreadable_objects = 0
        self._returned = 0
        self.nodes = NodeSink(self)
        self.pods = PodSink(self)
        self.quotas = QuotaSink(self)
        self.budgets = BudgetSink(self._budgets_are_known)

    def _budgets_are_known(self) -> None:
        self.waker.changed()

    def settle(self, now_ns: int) -> None:
        """Has pods tried again whose namespace had used up its time for looking, once it is back.

        Nothing happens in the cluster then that kube-scheduler could see.
        """
        returned = self.allocator.returned(now_ns)
        if returned != self._returned:
            self._returned = returned
            self.waker.changed()

    @property
    def is_known(self) -> bool:
        """Whether all of it has been listed once: before, full cards would look empty.

        Disruption budgets, which only a preemption looks at, are not waited for.
        """
        return self.nodes.is_listed and self.pods.is_listed and self.quotas.is_listed

    def unreadable(self, what: str, error: HamiError) -> None:
        """Something on the API server cannot be read: said, counted and left out."""
        self.unreadable_objects += 1
        _log.warning("%s: %s", what, error)
