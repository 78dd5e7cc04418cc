"""The coordinator: one process that hands out the time of cards on which slices have shares.

What others must know of it stands here, and the process itself in ``__main__``. Both import next to
nothing; its life is in ``hami_py.slices.coordinator``.
"""

LOCK = "coordinator.lock"
"""In the runtime directory: locked while one runs; says its pid and the version of the package."""

LOG = "coordinator.log"
"""Beside it: what the last one had to say, which is nothing unless it has failed."""
