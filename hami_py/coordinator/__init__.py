"""The coordinator: the process that schedules the cards on which slices have shares.

This module has the names of its files, and ``__main__`` is the process itself. Both import next to
nothing. ``hami_py.slices.coordinator`` starts the process.
"""

LOCK = "coordinator.lock"
"""In the runtime directory: locked while one runs; contains its pid and the package's version."""

LOG = "coordinator.log"
"""Beside it: the errors of the last coordinator; empty unless it failed."""
