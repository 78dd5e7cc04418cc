"""What a context takes of this machine's cards: measured once for a model and a driver version.

The results are kept in a file, as ``{model: {driver version: bytes}}``. Null stands for a
measurement that failed. A model without a result has the figures of the table in ``driver_memory``.
"""

import json
import logging
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from hami_py.errors import HamiError
from hami_py.gpu.context_memory import ROOM, measure
from hami_py.gpu.driver_memory import GRANULE
from hami_py.gpu.nvml import memory_free
from hami_py.model.cards import DriverMemory

_log = logging.getLogger(__name__)

_MOST = 16 << 30
"""Bytes. No context takes more, so a file with more is damaged."""

Results = dict[str, DriverMemory]
"""The memory that the driver takes of a card, by the card's model."""


class MeasuredMemory:
    """The results for some cards."""

    def __init__(
        self, path: Path, models: Mapping[str, str], driver: str, environment: Mapping[str, str]
    ) -> None:
        self._path, self._models, self._driver = path, models, driver
        self._environment = environment

    def results(self) -> Results:
        """The results that there are."""
        kept = _read(self._path)
        found = {model: kept.get(model, {}).get(self._driver) for model in self._models.values()}
        return {model: DriverMemory(size, GRANULE) for model, size in found.items() if size}

    def start(self, free: Mapping[str, int], use: Callable[[Results], None]) -> threading.Thread:
        """Measure in a thread, also what has failed before, and pass the results to ``use``.

        Args:
            free: bytes of each card, by UUID, that may be used for a moment.
            use: called with all results in the end.
        """

        def run() -> None:
            try:
                self.measure(free, again=True)
                use(self.results())
            except Exception:
                _log.exception("measuring what a context takes")

        thread = threading.Thread(target=run, name="measure", daemon=True)
        thread.start()
        return thread

    def measure(self, free: Mapping[str, int] | None = None, *, again: bool = False) -> None:
        """Measure the models that have no result yet, and keep the results.

        Args:
            free: as for ``start``; None = all that is free by NVML.
            again: measure also what has failed before.
        """
        kept = _read(self._path)
        for model in sorted(set(self._models.values())):
            of_model = kept.setdefault(model, {})
            if of_model.get(self._driver) or (self._driver in of_model and not again):
                continue
            card = self._with_room(model, free)
            if card is None:
                _log.info("no %s has room to measure what a context takes", model)
                continue
            of_model[self._driver] = self._measured(card, model)
            _write(self._path, kept)

    def _with_room(self, model: str, free: Mapping[str, int] | None) -> str | None:
        """The card of a model with the most free memory; None if that is not enough."""
        room = memory_free([uuid for uuid, name in self._models.items() if name == model])
        if free is not None:
            room = {uuid: min(size, free.get(uuid, 0)) for uuid, size in room.items()}
        best = max(room, key=room.__getitem__, default=None)
        return best if best is not None and room[best] >= ROOM else None

    def _measured(self, card: str, model: str) -> int | None:
        try:
            found = measure(card, self._environment)
        except HamiError as error:
            _log.info("%s", error)
            return None
        _log.info("a context takes %d MiB of a %s", found >> 20, model)
        return found


def _read(path: Path) -> dict[str, dict[str, int | None]]:
    """The results in a file; none if it is missing or damaged."""
    with suppress(OSError, ValueError, AttributeError):
        return {
            model: {driver: size for driver, size in sizes.items() if _is_result(size)}
            for model, sizes in json.loads(path.read_bytes()).items()
        }
    return {}


def _is_result(size: object) -> bool:
    return size is None or (type(size) is int and 0 < size <= _MOST)


def _write(path: Path, results: Mapping[str, Mapping[str, int | None]]) -> None:
    aside = path.with_suffix(".new")
    try:
        with aside.open("w") as file:
            file.write(json.dumps(results, indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError as error:
        _log.info("%s cannot be written: %s", path, error.strerror or error)
