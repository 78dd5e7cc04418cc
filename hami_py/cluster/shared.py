"""The state that the sinks of one cluster share."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hami_py.cluster.requeue import Requeuer
from hami_py.errors import HamiError
from hami_py.model import pods

if TYPE_CHECKING:
    from hami_py._native import Allocator

_log = logging.getLogger(__name__)


class SharedState:
    """The state that the sinks of one cluster share.

    Attributes:
        allocator: the engine. It locks itself, so threads may call it at the same time.
        settings: how pods are read.
        requeuer: notified of every change that may make room for a refused pod.
        invalid_objects: the number of invalid annotations and requests so far.
    """

    def __init__(
        self, allocator: Allocator, settings: pods.PodSettings, requeuer: Requeuer | None = None
    ) -> None:
        self.allocator = allocator
        self.settings = settings
        self.requeuer = requeuer or Requeuer()
        self.invalid_objects = 0

    def report_invalid(self, what: str, error: HamiError) -> None:
        """Logs and counts an object that is invalid and therefore left out."""
        self.invalid_objects += 1
        _log.warning("%s: %s", what, error)
