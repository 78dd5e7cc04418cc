"""The Rust core: quantities, the files of a slice, and the coordinator.

Raises ``hami_py.errors.InvalidValue`` and ``DamagedFile``, and ``OSError`` with a file name.
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Final, Literal, final

from typing_extensions import Self

__all__ = [
    "MAX_CARDS",
    "Account",
    "AccountSnapshot",
    "Grants",
    "LimitRow",
    "LimitsPage",
    "ProcessUse",
    "coordinate",
    "format_memory",
    "parse_memory",
    "parse_share",
    "same_card",
]

MAX_CARDS: Final[int]
"""Cards that a slice can have: rows of its limits page."""

_Source = Literal["api", "gpumem", "hami-env"]
_Mode = Literal["hard", "soft"]
_Priority = Literal["low", "normal", "high"]

def parse_memory(text: str, source: _Source, field: str) -> int:
    """Bytes meant by ``text``, by the grammar of docs/configuration.md.

    0 is no limit, which only HAMi's variables can say.
    """

def parse_share(text: str, source: _Source, field: str) -> int:
    """Percent meant by ``text``: 1 to 100; 0 (= no limit) only where HAMi's names are spoken."""

def format_memory(bytes: int) -> str:
    """The shortest exact text, e.g. ``4GiB`` or ``1536MiB``; ``parse_memory`` reads it back."""

def same_card(left: str, right: str) -> bool:
    """Whether two UUIDs name one card: the driver does not say whether it is a GPU- or a MIG-."""

def coordinate(runtime: str | PathLike[str], linger_seconds: float) -> None:
    """Hand out turns on the cards to the slices of a runtime directory.

    It works on the calling thread until there has been no slice for so many seconds. One process at
    a time may do this for a directory; who calls it sees to that. No Python runs meanwhile, signal
    handlers included: end it with a signal that has none.

    Raises:
        OSError: it cannot begin.
    """

@final
class LimitRow:
    """One card of a limits page: memory limit in bytes, share in percent; None = no limit."""

    uuid: str
    memory_limit: int | None
    share: int | None
    mode: _Mode
    priority: _Priority
    def __new__(
        cls,
        uuid: str,
        memory_limit: int | None = None,
        share: int | None = None,
        mode: _Mode = "hard",
        priority: _Priority = "normal",
    ) -> Self: ...

@final
class LimitsPage:
    """The file that says what a slice may use, opened for reading and (by its owner) changing."""

    @staticmethod
    def create(path: str | PathLike[str], rows: Sequence[LimitRow]) -> LimitsPage: ...
    @staticmethod
    def open(path: str | PathLike[str]) -> LimitsPage: ...
    def rows(self) -> list[LimitRow]: ...
    def set_memory_limits(self, limits: Mapping[str, int | None]) -> None: ...
    def set_regimes(self, regimes: Mapping[str, tuple[int | None, _Mode, _Priority]]) -> None:
        """Share, mode and priority by UUID, all of them in force at one instant."""

@final
class Grants:
    """The file in which a coordinator says whose turn it is on the cards of a slice."""

    @staticmethod
    def create(path: str | PathLike[str]) -> None:
        """Make an empty page, in which nobody coordinates; the file must not exist."""

@final
class ProcessUse:
    """What one process of a slice holds and uses; ``memory[i]`` is for the card of row i.

    Memory is in bytes, times are in nanoseconds: ``used_ns`` is engine time, ``throttled_ns`` how
    long its threads were kept from launching, ``debt_ns`` how far it is over its share just now.

    Its pid is the one of its own PID namespace (``pid_namespace``, an inode; 0 = unknown); with
    ``start_time`` (clock ticks since boot) it names one process, also where pids are used again.
    """

    pid: int
    start_time: int
    pid_namespace: int
    alive: bool
    memory: list[int]
    refusals: list[int]
    used_ns: list[int]
    throttled_ns: list[int]
    debt_ns: list[int]

@final
class AccountSnapshot:
    """An account, read once: the processes and the sums of its rows belong together.

    ``refusals``, ``used_ns`` and ``throttled_ns`` count also processes that are gone.
    """

    processes: list[ProcessUse]
    memory_used: list[int]
    refusals: list[int]
    used_ns: list[int]
    throttled_ns: list[int]

@final
class Account:
    """The file that says what the processes of a slice hold. Read here, written by the library."""

    @staticmethod
    def create(path: str | PathLike[str]) -> Account: ...
    @staticmethod
    def open(path: str | PathLike[str]) -> Account: ...
    def snapshot(self) -> AccountSnapshot: ...
    def reclaim(self) -> int:
        """Give back what dead processes held, as far as its time has come; how many bytes.

        It maps the file, so only for a slice whose processes are trusted not to cut it short.
        """
