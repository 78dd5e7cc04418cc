"""The commands of the Kubernetes side.

What they need is imported when one of them runs: the other commands start without it.
"""

from __future__ import annotations

from hami_py.cli.kubernetes.ask import explain, replay, snapshot, what_if
from hami_py.cli.kubernetes.scheduler import scheduler
from hami_py.cli.kubernetes.webhook import webhook

__all__ = ["explain", "replay", "scheduler", "snapshot", "webhook", "what_if"]
