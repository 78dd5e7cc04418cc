"""The devices that the kubelet is told of, and their changes."""

import threading
from collections.abc import Mapping

Devices = Mapping[str, bool]
"""Device IDs; True = healthy."""


class DeviceList:
    """The current devices. Threads may wait for a change."""

    def __init__(self) -> None:
        self._devices: Devices = {}
        self._version = 0
        self._wakes = 0
        self._changed = threading.Condition()

    def set(self, devices: Devices) -> None:
        """Replace the devices."""
        with self._changed:
            if devices != self._devices:
                self._devices = dict(devices)
                self._version += 1
                self._changed.notify_all()

    def wake(self) -> None:
        """End all waits, without a change."""
        with self._changed:
            self._wakes += 1
            self._changed.notify_all()

    def wait(self, version: int, timeout_s: float) -> tuple[int, Devices]:
        """The devices and their version, once the version differs or the time is over."""
        with self._changed:
            wakes = self._wakes
            self._changed.wait_for(
                lambda: self._version != version or self._wakes != wakes, timeout_s
            )
            return self._version, self._devices
