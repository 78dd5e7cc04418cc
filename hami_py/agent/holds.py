"""Containers that wait at their start. The reporter writes an event with the reason of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from threading import Lock

from hami_py.node.decision import Hold

__all__ = ["HeldContainer", "Holds"]


@dataclass(frozen=True)
class HeldContainer:
    """A container that waits.

    Attributes:
        pod: the pod's UID.
        container: its name.
        hold: why.
    """

    pod: str
    container: str
    hold: Hold


class Holds:
    """The containers that wait. Threads may share it."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], HeldContainer] = {}
        self._lock = Lock()

    def all(self) -> list[HeldContainer]:
        """All of them."""
        with self._lock:
            return list(self._held.values())

    def hold(self, pod: str, container: str, hold: Hold) -> None:
        """A container has to wait; also if it waits already."""
        with self._lock:
            self._held[(pod, container)] = HeldContainer(pod, container, hold)

    def started(self, pod: str, container: str) -> None:
        """A container does not wait any more."""
        with self._lock:
            self._held.pop((pod, container), None)

    def keep(self, pods: Iterable[str]) -> None:
        """Forget the containers of other pods than these."""
        there = {*pods}
        with self._lock:
            self._held = {key: held for key, held in self._held.items() if key[0] in there}
