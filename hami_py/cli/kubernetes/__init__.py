"""The commands of the Kubernetes side.

They import their dependencies when they run, so that the other commands start without them.
"""

from __future__ import annotations

from hami_py.cli.kubernetes.node import node
from hami_py.cli.kubernetes.queries import explain, replay, snapshot, what_if
from hami_py.cli.kubernetes.scheduler import scheduler
from hami_py.cli.kubernetes.webhook import webhook

__all__ = ["explain", "node", "replay", "scheduler", "snapshot", "webhook", "what_if"]
