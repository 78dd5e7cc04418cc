"""Calls of NVML that must not wait for ever."""

import threading
from collections.abc import Callable
from typing import TypeVar

from hami_py.errors import DriverError
from hami_py.gpu.nvml import session

_T = TypeVar("_T")


class Caller:
    """Calls NVML with a deadline. While a call hangs, the next ones fail at once.

    Args:
        name: of its thread.
        deadline_s: how long a call may take.
    """

    def __init__(self, name: str, deadline_s: float) -> None:
        self._name, self._deadline_s = name, deadline_s
        self._lock = threading.Lock()
        self._last: threading.Thread | None = None

    def call(self, ask: Callable[[], _T]) -> _T:
        """The result of ``ask``, in a session of NVML.

        Raises:
            NoDriver: there is no driver, or it does not respond.
            DriverError: NVML fails or hangs. A call that hangs may have its effect later.
        """
        results: list[_T] = []
        errors: list[BaseException] = []
        why = "an earlier call has not returned yet"

        def run() -> None:
            try:
                with session():
                    results.append(ask())
            except BaseException as error:
                errors.append(error)

        with self._lock:
            if self._last is None or not self._last.is_alive():
                # A daemon: the process can exit although NVML hangs.
                self._last = threading.Thread(target=run, name=self._name, daemon=True)
                self._last.start()
                self._last.join(self._deadline_s)
                why = f"it has not answered for {self._deadline_s:.0f} s"
        if errors:
            raise errors[0]
        if not results:
            raise DriverError("NVML", why, "check `nvidia-smi` and `dmesg` on the node")
        return results[0]
