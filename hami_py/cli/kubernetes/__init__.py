"""The commands of the Kubernetes side.

They import their dependencies when they run, so that the other commands start without them.
"""

from __future__ import annotations

from hami_py.cli.kubernetes.cordoning import cordon, uncordon
from hami_py.cli.kubernetes.node import node
from hami_py.cli.kubernetes.overview import inspect, quota, top_node, top_pod
from hami_py.cli.kubernetes.queries import explain, replay, snapshot, what_if
from hami_py.cli.kubernetes.scheduler import scheduler
from hami_py.cli.kubernetes.webhook import webhook

__all__ = [
    "cordon",
    "explain",
    "inspect",
    "node",
    "quota",
    "replay",
    "scheduler",
    "snapshot",
    "top_node",
    "top_pod",
    "uncordon",
    "webhook",
    "what_if",
]
