"""Programs that launch under a share, and the two books of their engine time.

The ledger is the driver's: every kernel that reached the card, and how long the card was busy with
it. The account is ours: what the meter billed.
"""

import mmap
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from support import slices
from support.console import Console
from support.stub import StubServer

#: Seconds in which a state has to be reached; far more than any takes.
_DEADLINE = 15.0

#: Later than any instant: a pulse that never grows old, a turn that never ends.
_NEVER = (1 << 63) - 1

#: The start of every program: device 0 in use, a module.
BEGIN = ["init", "device 0 a", "module m"]


class Launcher(Console):
    """A console alone in its slice (None: in none)."""

    def __init__(
        self, program: Path, env: Mapping[str, str], gpu: StubServer, slice: Path | None
    ) -> None:
        super().__init__(program, env, slice)
        self._gpu = gpu

    def launched(self, card: int = 0) -> dict[str, int]:
        """How often each kernel has reached the card."""
        return launched(self._gpu, card, self.pid)

    def busy_ns(self, card: int = 0) -> int:
        """Engine time, by the ledger."""
        rows = [p for p in self._gpu.ledger()["processes"] if p["pid"] == self.pid]
        return sum(row["cards"][card]["busy_ns"] for row in rows if row["library"] == "cuda")

    def account(self, field: str, card: int = 0) -> int:
        """What our account says of this process: `used_ns`, `throttled_ns` or `debt_ns`."""
        from hami_py._native import Account

        snapshot = Account.open(self.slice / "account").snapshot()
        return sum(getattr(p, field)[card] for p in snapshot.processes if p.pid == self.pid)

    def waits(self) -> None:
        """Wait until a thread of it has been waiting at the gate."""
        before = self.account("throttled_ns")
        until(lambda: self.account("throttled_ns") > before, "it never waits at the gate")

    def is_metered(self, tolerance: float, *, at_least_ns: int, card: int = 0) -> None:
        """Wait until everything is billed, and as much as the ledger says that it was.

        All that was launched must have ended. A meter that has yet to bill says too little.
        """
        busy = self.busy_ns(card)
        assert busy >= at_least_ns, f"the card was busy for {busy} ns only"

        def agrees() -> bool:
            return abs(self.account("used_ns", card) - busy) <= tolerance * busy

        until(agrees, lambda: f"billed {self.account('used_ns', card)} ns of {busy}")
        assert self.busy_ns(card) == busy, "the program still had work in flight"

    def tasks(self) -> list[str]:
        """The names of its threads, once each has its own."""

        def names() -> list[str]:
            threads = Path(f"/proc/{self.pid}/task").iterdir()
            return sorted((thread / "comm").read_text().strip() for thread in threads)

        own = Path(f"/proc/{self.pid}/comm").read_text().strip()
        # A new thread has its maker's name until it takes its own.
        until(lambda: names().count(own) == 1, lambda: f"unnamed threads: {names()}")
        return names()


class Gate:
    """A coordinator's hand on one card of a slice: shut, nobody may launch.

    Written by the layout that the library's page documents, by no code of ours.
    """

    def __init__(self, slice: Path, row: int = 0) -> None:
        self._path, self._row, self._turn = slice / "grants", 64 + 64 * row, 0

    def shut(self) -> None:
        """A turn that is nobody's and never ends."""
        self._grant(kind=2, holder=0xFFFE)

    def open(self) -> None:
        """The card is everybody's: each process's own bucket decides."""
        self._grant(kind=1, holder=0xFFFF)

    def _grant(self, *, kind: int, holder: int) -> None:
        self._turn += 1
        with self._path.open("r+b") as file, mmap.mmap(file.fileno(), 4096) as page:
            struct.pack_into("<Q", page, self._row + 8, _NEVER)
            word = self._turn | kind << 32 | holder << 48
            struct.pack_into("<Q", page, self._row, word)
            struct.pack_into("<Q", page, 32, _NEVER)


def make_slice(directory: Path, gpu: StubServer, share: int | None) -> Path:
    """A slice directory with a grants page, like those that `hami` makes."""
    from hami_py._native import GrantsPage

    made = slices.make(directory, dict.fromkeys(gpu.uuids()), share)
    GrantsPage.create(made / "grants")
    return made


def launched(gpu: StubServer, card: int = 0, pid: int | None = None) -> dict[str, int]:
    """How often each kernel has reached the card, from one process or all."""
    total: dict[str, int] = {}
    for process in gpu.ledger()["processes"]:
        if pid in (None, process["pid"]):
            for name, row in _kernels(process, card).items():
                total[name] = total.get(name, 0) + int(row["launched"])
    return total


def _kernels(process: dict[str, Any], card: int) -> dict[str, Any]:
    kernels: dict[str, Any] = process["cards"][card].get("by_kernel", {})
    return kernels


def until(condition: Callable[[], bool], otherwise: str | Callable[[], str]) -> None:
    """Wait for this, and say what is there instead where it never comes."""
    deadline = time.monotonic() + _DEADLINE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(otherwise if isinstance(otherwise, str) else otherwise())
        time.sleep(0.002)
