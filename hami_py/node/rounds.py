"""Work that an agent does again and again, such as comparing the node with what should be."""

import logging
import threading
from collections.abc import Callable, Sequence

from hami_py.errors import HamiError

_log = logging.getLogger(__name__)

_END_S = 2.0


class Rounds:
    """Rounds of some steps, in a thread of their own or in that of a caller of ``run``.

    A step that fails is taken again in the next round. An error is logged when it is a new one.

    Args:
        name: what the steps do.
        steps: the steps, in their order.
        period_s: the pause between two rounds.
        stopping: ends the rounds when it is set, after a call of ``wake``.
    """

    def __init__(
        self,
        name: str,
        steps: Sequence[Callable[[], object]],
        period_s: float,
        stopping: threading.Event | None = None,
    ) -> None:
        self._name, self._steps, self._period_s = name, steps, period_s
        self._stopping = stopping or threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self.run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, unless a step hangs; then it ends with the process."""
        self._stopping.set()
        self.wake()
        self._thread.join(_END_S)

    def wake(self) -> None:
        """Begin the next round soon: something has changed."""
        self._wake.set()

    @property
    def is_running(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def run(self) -> None:
        """Do rounds until ``stopping`` is set."""
        said: dict[int, str] = {}
        while not self._stopping.is_set():
            for number, step in enumerate(self._steps):
                try:
                    step()
                    said.pop(number, None)
                except HamiError as error:
                    if said.get(number) != str(error):
                        _log.error("%s: %s", self._name, error)
                    said[number] = str(error)
                except Exception:
                    _log.exception("%s", self._name)
            self._wake.wait(self._period_s)
            self._wake.clear()
