"""Programs that launch under a share, and their engine time by the ledger and by the account.

The stub driver writes the ledger: every kernel that reached the card, and how long the card was
busy with it. Our library writes the account: the engine time that the meter has billed.
"""

import contextlib
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
_DEADLINE = 60.0

#: Later than any instant: for a pulse that never expires, and a turn that never ends.
_NEVER = (1 << 63) - 1

#: The start of every program: device 0 in use, a module.
BEGIN = ["init", "device 0 a", "module m"]


class Launcher(Console):
    """A console that is the only program of its slice; without a slice if that is None."""

    def __init__(
        self, program: Path, env: Mapping[str, str], gpu: StubServer, slice: Path | None
    ) -> None:
        super().__init__(program, env, slice)
        self._gpu = gpu

    def launched(self, card: int = 0) -> dict[str, int]:
        """The number of launches that reached the card, by kernel."""
        return launched(self._gpu, card, self.pid)

    def busy_ns(self, card: int = 0) -> int:
        """The engine time by the ledger."""
        rows = [p for p in self._gpu.ledger()["processes"] if p["pid"] == self.pid]
        return sum(row["cards"][card]["busy_ns"] for row in rows if row["library"] == "cuda")

    def account(self, field: str, card: int = 0) -> int:
        """A field of this process in our account: `used_ns`, `throttled_ns` or `debt_ns`."""
        from hami_py._native import Account

        snapshot = Account.open(self.slice / "account").snapshot()
        return sum(getattr(p, field)[card] for p in snapshot.processes if p.pid == self.pid)

    def waits(self) -> None:
        """Wait until a thread of it has been waiting for permission to launch."""
        before = self.account("throttled_ns")
        until(lambda: self.account("throttled_ns") > before, "no thread waits for permission")

    def is_metered(self, tolerance: float, *, at_least_ns: int, card: int = 0) -> None:
        """Wait until at least the time in the ledger is billed.

        All kernels must have ended. The meter bills them later. It may bill more: on the real
        clock, a thread may stand still between our event and its launch.
        """
        busy = self.busy_ns(card)
        assert busy >= at_least_ns, f"the card was busy for {busy} ns only"

        def agrees() -> bool:
            return self.account("used_ns", card) >= (1 - tolerance) * busy

        until(agrees, lambda: f"billed {self.account('used_ns', card)} ns of {busy}")
        assert self.busy_ns(card) == busy, "the program still had work in flight"

    def tasks(self) -> list[str]:
        """The names of its threads, when all have been set."""

        def names() -> list[str]:
            found = []
            for thread in Path(f"/proc/{self.pid}/task").iterdir():
                # It may end meanwhile.
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    found.append((thread / "comm").read_text().strip())
            return sorted(found)

        own = Path(f"/proc/{self.pid}/comm").read_text().strip()
        # A new thread has the name of its creator until it sets its own.
        until(lambda: names().count(own) == 1, lambda: f"unnamed threads: {names()}")
        return names()


class LaunchPermission:
    """Grants or revokes permission to launch on one card of a slice, in place of the coordinator.

    It writes the page by its documented layout, without our code.
    """

    def __init__(self, slice: Path, row: int = 0) -> None:
        self._path, self._row, self._turn = slice / "grants", 64 + 64 * row, 0

    def revoke(self) -> None:
        """Write a turn without a holder that never ends."""
        self._write(kind=2, holder=0xFFFE)

    def grant(self) -> None:
        """Write a grant for all processes; the bucket of each process decides."""
        self._write(kind=1, holder=0xFFFF)

    def _write(self, *, kind: int, holder: int) -> None:
        self._turn += 1
        with self._path.open("r+b") as file, mmap.mmap(file.fileno(), 4096) as page:
            struct.pack_into("<Q", page, self._row + 8, _NEVER)
            word = self._turn | kind << 32 | holder << 48
            struct.pack_into("<Q", page, self._row, word)
            struct.pack_into("<Q", page, 32, _NEVER)


def make_slice(directory: Path, gpu: StubServer, share: int | None) -> Path:
    """Create a slice directory with a grants page, as `hami` does."""
    from hami_py._native import GrantsPage

    made = slices.make(directory, dict.fromkeys(gpu.uuids()), share)
    GrantsPage.create(made / "grants")
    return made


def launched(gpu: StubServer, card: int = 0, pid: int | None = None) -> dict[str, int]:
    """The number of launches that reached the card, by kernel, of one process or all."""
    total: dict[str, int] = {}
    for process in gpu.ledger()["processes"]:
        if pid in (None, process["pid"]):
            for name, row in _kernels(process, card).items():
                total[name] = total.get(name, 0) + int(row["launched"])
    return total


def _kernels(process: dict[str, Any], card: int) -> dict[str, Any]:
    kernels: dict[str, Any] = process["cards"][card].get("by_kernel", {})
    return kernels


def until(
    condition: Callable[[], bool], otherwise: str | Callable[[], str] = "it did not come true"
) -> None:
    """Wait for a condition; raise TimeoutError with the text if it does not come true."""
    deadline = time.monotonic() + _DEADLINE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(otherwise if isinstance(otherwise, str) else otherwise())
        time.sleep(0.002)
