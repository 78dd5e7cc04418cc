"""Measuring what the driver holds for the programs of ``hami run``.

The driver does not report what it takes for modules and for the local memory of kernels, nor when
it has freed the memory of a process that has died. NVML shows what it holds for each process. On a
node of Kubernetes, the sweeper and the coordinator compare that with the accounts. For ``hami run``
a thread of its own process does, for one slice. It can only where NVML shows the PIDs of our own
PID namespace: on the host, not in a container.
"""

import sys
import threading
from contextlib import suppress
from pathlib import Path

from hami_py._native import MemoryMeter
from hami_py.config import GRANTS, Settings
from hami_py.errors import DamagedFile
from hami_py.slices.machine import is_of_machine
from hami_py.slices.processes import has_host_pids
from hami_py.slices.runtime import try_lock

INTERVAL = 0.5
"""Seconds between two looks for the first process of the slice."""

LOADED_AFTER = 4
"""Looks until the modules for NVML are loaded in any case: an upgrade of the package may remove
their files later. Many programs that use no card have ended before."""

END_DEADLINE = 1.0
"""Seconds to wait for the end of a sweep, which usually takes milliseconds."""


class Measuring:
    """A thread that measures the memory of a slice's processes."""

    def __init__(self, settings: Settings, directory: Path) -> None:
        self._directory = directory
        # The excess would be the contexts, which the user does not want to be charged.
        self._measures = settings.context_memory != "0"
        # The machine's service measures its own.
        self._is_ours = not is_of_machine(settings, directory)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, if it can measure here. Starting it again has no effect."""
        if self._thread is not None or not self._is_ours or not has_host_pids():
            return
        self._thread = threading.Thread(target=self._run, name="measure", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop measuring. Processes that still run keep their last measured memory."""
        self._stop.set()
        if self._thread is not None:
            # NVML can hang if a card fails.
            self._thread.join(END_DEADLINE)

    def _run(self) -> None:
        # Without its files, the slice is being removed.
        with suppress(OSError), (self._directory / GRANTS).open("rb") as lock:
            # The lock of the process that measures a slice.
            while not try_lock(lock.fileno()):
                if self._stop.wait(INTERVAL):
                    return
            meter = MemoryMeter(self._directory, self._measures)
            # An earlier `hami run` of the slice may have been killed.
            meter.release_ended()
            if not self._wait_for_processes(meter, LOADED_AFTER):
                return
            try:
                from hami_py.gpu.sweep import Sweeper  # noqa: PLC0415
            except ImportError as error:
                why = f"hami-py was removed or replaced while this program ran ({error})"
                print(
                    f"hami: driver memory is not measured: {why}; start it again", file=sys.stderr
                )
                return
            if not self._wait_for_processes(meter):
                return

            def update(sweep: bytes) -> None:
                try:
                    meter.update(sweep)
                except DamagedFile as error:
                    print(f"hami: {error}", file=sys.stderr)
                    self._stop.set()

            Sweeper(update).run(self._stop)
            # So nothing stays measured in a slice that is kept.
            meter.release_ended()

    def _wait_for_processes(self, meter: MemoryMeter, most: int | None = None) -> bool:
        """Wait for the first process of the slice, for so many looks; False = it was stopped."""
        looks = 0
        while not meter.has_processes() and looks != most:
            if self._stop.wait(INTERVAL):
                return False
            looks += 1
        return True
