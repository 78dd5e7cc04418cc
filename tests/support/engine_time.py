"""The engine time in a world, by container and process, from the stub's ledger.

Times are seconds since the world began, shares are percent of one card's time.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from support.stub import StubServer

#: By card and number of the history's bucket, nanoseconds of engine time in it.
_Buckets = Mapping[int, Mapping[int, int]]


@dataclass(frozen=True)
class Played:
    """The results of a world.

    Attributes:
        seconds: how long the world was observed.
        said: by container, each process's last line; an empty mapping if it was killed.
        launched: by container and process, the number of launches by kernel.
        looks: by container, the content of its account at each ``look``.
        billed: by container with a slice, seconds of engine time on the first card that its account
            has at the end.
    """

    seconds: float
    said: Mapping[str, Sequence[Mapping[str, Any]]]
    launched: Mapping[str, Sequence[Mapping[str, int]]]
    looks: Mapping[str, Sequence[Mapping[str, Any]]]
    billed: Mapping[str, float]
    _buckets: Mapping[str, Sequence[_Buckets]] = field(repr=False)
    _bucket_ns: int
    _zero_ns: int

    def busy(
        self,
        name: str,
        start: float = 0.0,
        end: float | None = None,
        *,
        process: int | None = None,
        card: int = 0,
    ) -> float:
        """Seconds of engine time that a container, or one process of it, had from start to end.

        Both are whole buckets of the history, which are 10 ms long; on the real clock, where the
        world begins anywhere in one, as near as that.
        """
        first = self._bucket(start)
        last = self._bucket(self.seconds if end is None else end)
        processes = self._buckets[name]
        chosen = processes if process is None else [processes[process]]
        return (
            sum(
                ns
                for cards in chosen
                for bucket, ns in cards.get(card, {}).items()
                if first <= bucket < last
            )
            / 1e9
        )

    def share(
        self,
        name: str,
        start: float = 0.0,
        end: float | None = None,
        *,
        process: int | None = None,
        card: int = 0,
    ) -> float:
        """The same in percent of the card's time."""
        length = (self.seconds if end is None else end) - start
        return 100 * self.busy(name, start, end, process=process, card=card) / length

    def history(self, name: str, *, process: int | None = None, card: int = 0) -> list[float]:
        """Seconds of engine time in each 10 ms since the world began."""
        first, last = self._bucket(0.0), self._bucket(self.seconds)
        spent = [0.0] * (last - first)
        processes = self._buckets[name]
        for cards in processes if process is None else [processes[process]]:
            for bucket, ns in cards.get(card, {}).items():
                if first <= bucket < last:
                    spent[bucket - first] += ns / 1e9
        return spent

    def windows(
        self, name: str, length: float = 1.0, start: float = 0.0, *, card: int = 0
    ) -> list[float]:
        """The shares of one window after the other."""
        count = math.floor((self.seconds - start) / length + 1e-9)
        return [
            self.share(name, start + index * length, start + (index + 1) * length, card=card)
            for index in range(count)
        ]

    def first(self, name: str, after: float = 0.0, *, card: int = 0) -> float | None:
        """When a container first had the engine after an instant: its bucket's beginning."""
        least = self._bucket(after)
        found = [
            bucket
            for cards in self._buckets[name]
            for bucket in cards.get(card, {})
            if bucket >= least
        ]
        return (min(found) * self._bucket_ns - self._zero_ns) / 1e9 if found else None

    def _bucket(self, instant: float) -> int:
        return round((self._zero_ns + round(instant * 1e9)) / self._bucket_ns)


def read(
    gpu: StubServer,
    pids: Mapping[str, Sequence[int]],
    *,
    seconds: float,
    zero_ns: int,
    said: Mapping[str, Sequence[Mapping[str, Any]]],
    looks: Mapping[str, Sequence[Mapping[str, Any]]],
    billed: Mapping[str, float],
) -> Played:
    """Read the ledger's data about these containers' processes.

    Args:
        gpu: the stub server with the ledger.
        pids: by container, its processes.
        seconds: how long the world was observed.
        zero_ns: when it began, on the clock of the history.
        said: as in `Played`.
        looks: likewise.
        billed: likewise.
    """
    history = gpu.control({"command": "history"})
    bucket_ns = history["bucket_ns"]
    buckets: dict[int, dict[int, dict[int, int]]] = {}
    for process in history["processes"]:
        cards = buckets.setdefault(process["pid"], {})
        for index, card in enumerate(process["cards"]):
            spent = cards.setdefault(index, {})
            for start, ns in card["buckets"]:
                bucket = start // bucket_ns
                spent[bucket] = spent.get(bucket, 0) + ns
    launched: dict[int, dict[str, int]] = {}
    for process in gpu.ledger()["processes"]:
        kernels = launched.setdefault(process["pid"], {})
        for card in process["cards"]:
            for kernel, used in card["by_kernel"].items():
                kernels[kernel] = kernels.get(kernel, 0) + used["launched"]
    return Played(
        seconds=seconds,
        said=said,
        launched={name: [launched.get(pid, {}) for pid in group] for name, group in pids.items()},
        looks=looks,
        billed=billed,
        _buckets={name: [buckets.get(pid, {}) for pid in group] for name, group in pids.items()},
        _bucket_ns=bucket_ns,
        _zero_ns=zero_ns,
    )
