"""Cards with what a context takes of them, as ``hami doctor`` has measured it on this machine.

The results are in the user's runtime directory, until the machine starts again. Measuring takes a
second or two. Nothing waits for another process that measures.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from hami_py import gpu
from hami_py.config import Settings
from hami_py.errors import HamiError
from hami_py.model import Card
from hami_py.slices.runtime import runtime_directory, try_lock


def as_measured(cards: Sequence[Card], settings: Settings, *, measures: bool) -> list[Card]:
    """The cards with their results; as they are if they have none, or it cannot be read.

    ``measures``: what is not known yet is measured. A failure is kept, and not tried again.
    """
    results = {}
    if not measures and not settings.runtime_directory.exists():
        return list(cards)
    # Imported here, because it imports NVML's bindings (see hami_py.gpu).
    from hami_py.gpu.measured_memory import MeasuredMemory  # noqa: PLC0415

    with suppress(HamiError, OSError):
        directory = runtime_directory(settings.runtime_directory)
        models = {card.uuid: card.name for card in cards}
        measured = MeasuredMemory(
            directory / "driver-memory.json", models, gpu.driver_version(), settings.environment
        )
        results = measured.results()
        if measures and not results.keys() >= set(models.values()):
            lock = directory / "driver-memory.lock"
            descriptor = os.open(lock, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if try_lock(descriptor):
                    measured.measure()
            finally:
                os.close(descriptor)
            results = measured.results()
    return [
        replace(card, driver_memory=results.get(card.name, card.driver_memory)) for card in cards
    ]
