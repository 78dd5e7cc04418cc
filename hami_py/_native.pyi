"""The Rust core: quantities, the files of a slice, the coordinator, and the cluster allocator.

It raises ``hami_py.errors.InvalidValue``, ``DamagedFile`` and ``Unfit``, and ``OSError`` with a
file name.
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Final, Literal, final

from typing_extensions import Self

__all__ = [
    "ACCOUNT_SIZE",
    "FORMAT",
    "HAMI_MEMORY_LIMITS",
    "HAMI_SHARE_LIMITS",
    "MAX_CARDS",
    "VERSION",
    "Account",
    "AccountSnapshot",
    "Allocator",
    "GrantsPage",
    "HamiLimit",
    "HamiVariables",
    "LimitRow",
    "LimitsPage",
    "MemoryMeter",
    "ProcessUse",
    "clock_ns",
    "coordinate",
    "format_memory",
    "parse_memory",
    "parse_share",
    "runtime_directory",
    "same_card",
]

MAX_CARDS: Final[int]
"""The most cards that a slice can have: the rows of its limits page."""

VERSION: Final[str]
"""The version of the package, which is that of the workspace in Cargo.toml."""

ACCOUNT_SIZE: Final[int]
"""The bytes of every account."""

FORMAT: Final[int]
"""The format of a slice's files that this version reads and writes."""

HAMI_MEMORY_LIMITS: Final[tuple[str, ...]]
"""HAMi's variables that set memory limits: the one for every card, then the one of each card."""

HAMI_SHARE_LIMITS: Final[tuple[str, ...]]
"""HAMi's variables that set shares, in the same order."""

_Source = Literal["api", "hami-env"]
_Mode = Literal["hard", "soft"]
_Priority = Literal["low", "normal", "high"]

def parse_memory(text: str, source: _Source, field: str) -> int | None:
    """The bytes that ``text`` means, by the grammar of docs/configuration.md.

    None = no limit, which only HAMi's variables can mean.

    Raises:
        InvalidValue: with field, value and fix.
    """

def parse_share(text: str, source: _Source, field: str) -> int | None:
    """The percentage that ``text`` means, 1 to 100.

    None = no limit, which only HAMi's variables can mean.

    Raises:
        InvalidValue: with field, value and fix.
    """

def format_memory(bytes: int) -> str:
    """The shortest exact text, e.g. ``4GiB`` or ``1536MiB``; ``parse_memory`` reads it back."""

def same_card(left: str, right: str) -> bool:
    """Whether two UUIDs name the same card; their prefix, ``GPU-`` or ``MIG-``, is ignored."""

@final
class HamiLimit:
    """The limits that HAMi's variables set for one card; by default none.

    Memory is in bytes, the share in percent of the card's time, 1 to 99; None = no limit. Without a
    share the mode is ``hard``. A priority of None means that ``CUDA_TASK_PRIORITY`` is not set.
    """

    memory: int | None
    share: int | None
    mode: _Mode
    priority: _Priority | None
    def __new__(cls) -> Self: ...

@final
class HamiVariables:
    """The limits that HAMi's variables set, parsed by the parser of the preload library.

    They bind the innermost slice, or the program where there is none, and they may only lower.
    """

    set_a_limit: bool
    """Whether the variables limit the memory or the time of any card."""

    def __new__(cls, environment: Mapping[str, str]) -> Self:
        """Parse the variables of an environment; others are ignored.

        Raises:
            InvalidValue: one of them cannot be understood.
        """

    def limit(self, number: int | None, beside: LimitRow | None = None) -> HamiLimit:
        """The limits of the card of this number; where it is not known, the lowest of all.

        Args:
            number: the card.
            beside: the card's row in the limits page. A value that is recorded there as injected
                sets no limit.
        """

def coordinate(
    runtime: str | PathLike[str], linger_seconds: float, *, parent: int | None = None
) -> None:
    """Lease the cards to the slices of a runtime directory.

    It runs on the calling thread until there has been no slice for this many seconds. The caller
    makes sure that only one process at a time does this for a directory. No Python code runs in the
    meantime, signal handlers included: end it with a signal that has none. With the number of the
    parent process, the kernel kills it when the thread that started it ends.

    Raises:
        OSError: it cannot start, or the parent has ended.
    """

@final
class Allocator:
    """Allocates cards to pods over all nodes: filter, score, hold, reserve, release.

    JSON is passed as bytes; its types, named below, are in ``hami_py.model.pods.wire``. Memory is
    in MiB, cores are percent of one card, and times are nanoseconds of one clock of the caller. A
    node has at most 64 cards, and a pod at most 64 containers that request cards.

    Every method that takes JSON raises ``InvalidValue`` with the field if a value is not allowed;
    no other method does. The state is in memory only. Methods can be called from several threads;
    a lock serialises them, and they release the interpreter's lock.
    """

    def __new__(cls) -> Self: ...
    @staticmethod
    def restore(snapshot: bytes) -> Allocator:
        """An allocator in the state of a snapshot.

        Raises:
            InvalidValue: this is not a snapshot, or one of another version.
        """

    def set_node(self, node: bytes) -> None:
        """Add or replace a ``Node``; pods that are bound to it stay.

        Raises:
            InvalidValue: a number is out of range, a card is repeated, or there are too many.
        """

    def remove_node(self, name: str) -> None:
        """Remove a node; its pods count again when it returns."""

    def set_quota(self, quota: bytes) -> None:
        """Add or replace a ``Quota``.

        Raises:
            InvalidValue: this is not a ``Quota``.
        """

    def remove_quota(self, namespace: str, name: str) -> None:
        """Remove a quota."""

    def place(self, request: bytes, assignment: bytes, started: bool) -> None:
        """Record a bound pod, instead of anything held or reserved for it.

        The assignment is taken as it is, even if it is too much for a card. Repeating the call
        changes nothing.

        Args:
            request: a ``PodRequest``.
            assignment: its ``Assignment``.
            started: its ordinary init containers are done.

        Raises:
            InvalidValue: one of them is invalid, or they are not of one pod.
        """

    def remove(self, uid: str) -> None:
        """Remove a pod that was deleted or has ended."""

    def release(self, uid: str) -> None:
        """Release what is held or reserved for a pod; what is bound stays."""

    def end_hold(self, uid: str) -> None:
        """End the hold for a pod; what is reserved or bound stays."""

    def hold_freed(self, request: bytes, node: str, victims: list[str], now_ns: int) -> None:
        """Hold the cards that a pod gets on a node without its victims, until ``end_hold``.

        While the victims are there, more is allocated than the cards have. A pod that has cards, or
        for which cards are held or reserved, keeps those. If the pod does not fit even then,
        nothing is held.

        Raises:
            InvalidValue: this is not a ``PodRequest``.
        """

    def expire(self, now_ns: int) -> int:
        """End expired holds; returns how many have expired so far."""

    def filter(
        self, request: bytes, names: list[str] | None, now_ns: int
    ) -> tuple[list[str], dict[str, str], dict[str, str]]:
        """The nodes that fit, in the given order (None: all nodes by name), and why others do not.

        The first reasons are for full nodes, where evictions may help. The second are for nodes
        where no eviction would help: the empty node would not fit either, a quota is used up, or
        the namespace has used its search steps. Reasons have no amounts, so that nodes have equal
        texts; ``explain`` has the amounts. For all nodes there is no limit of steps.

        Raises:
            InvalidValue: this is not a ``PodRequest``.
        """

    def fits_without_unbound(
        self, request: bytes, names: list[str], now_ns: int, soon_ns: int
    ) -> bool:
        """Whether a node would fit without the cards that are held or reserved for other pods.

        Held cards count if the hold ends by ``soon_ns``.

        Raises:
            InvalidValue: this is not a ``PodRequest``.
        """

    def score(
        self, request: bytes, names: list[str], now_ns: int, hold_ns: int
    ) -> list[tuple[str, int]]:
        """The score of each node from 0 to 10,000; 0 if the pod does not fit.

        The cards of the best node are held for ``hold_ns``; 0 holds none. ``explain`` has the same
        score from 0 to 100.

        Raises:
            InvalidValue: this is not a ``PodRequest``.
        """

    def filter_names(self, request: bytes, names: bytes, now_ns: int) -> tuple[int, bool, bytes]:
        """``filter`` of a JSON list of names: ``ExtenderFilterResult`` as JSON.

        It is preceded by the number of nodes that fit, and whether all nodes were searched: with
        several containers and linked cards the search may take too long. The verdicts are cached,
        so the next call continues there. If the namespace has used its search steps, the rest of
        the nodes is refused and the result counts as complete.

        Raises:
            InvalidValue: this is not a ``PodRequest``, or the names are not a JSON list.
        """

    def prioritize_names(self, request: bytes, names: bytes, now_ns: int, hold_ns: int) -> bytes:
        """``score`` of a JSON list of names: ``HostPriorityList`` as JSON.

        10 is for the best node alone, whose cards are held. The others have 0 to 9, by the position
        of their score between the lowest and the highest; 9 if all are equal.

        Raises:
            InvalidValue: this is not a ``PodRequest``, or the names are not a JSON list.
        """

    def reserve(self, request: bytes, node: str, now_ns: int) -> bytes:
        """Reserve cards on a node and return the ``Assignment``; repeating it returns the same.

        Raises:
            Unfit: the node does not fit, with the reason; also if it does not exist, or if the pod
                is bound to another node.
            InvalidValue: this is not a ``PodRequest``.
        """

    def victims(
        self, request: bytes, node: str, candidates: bytes, now_ns: int
    ) -> list[str] | None:
        """The UIDs of the pods to evict; None if evictions would not help.

        All calls for one pod at one time are one question, whatever the node. If the namespace has
        used its search steps, the answer for further nodes is None, too.

        Args:
            request: a ``PodRequest``.
            node: the name of the node.
            candidates: a list of ``{"uid": …, "priority": …, "pdb_violating": …, "chosen": …}``.
                Candidates whose priority is not lower than the request's are ignored; ``chosen``
                ones are evicted in any case.
            now_ns: the same for all nodes of one question.

        Raises:
            InvalidValue: one of them is invalid.
        """

    def preemption_is_over(self, uid: str, now_ns: int) -> bool:
        """Whether that question has used its steps, so that no further node is searched."""

    def explain(self, request: bytes, node: str) -> bytes:
        """Explain each card of a node, with the assignment and the score if the pod fits.

        The result is a ``hami_py.cluster.explanation.NodeView``; its score is from 0 to 100.

        Raises:
            InvalidValue: this is not a ``PodRequest``.
        """

    def snapshot(self) -> bytes:
        """The state, for ``restore``."""

    def digest(self) -> str:
        """A digest that is equal for equal states, however they came about."""

    def usage(self) -> bytes:
        """The allocated part of each card, and its pods, in MiB, percent and slots.

        The types are those of native/allocator/src/questions/usage.rs.
        """

    def namespaces(self) -> bytes:
        """What each namespace with pods or quotas uses, and its quotas.

        The types are those of native/allocator/src/questions/usage.rs.
        """

    def node_metrics(self) -> bytes:
        """The allocated parts of each node's cards, in Prometheus' text format.

        Other calls get their turn every few hundred nodes, so it is not of one instant.
        """

    def card_metrics(self) -> bytes:
        """The allocated part of each card, likewise."""

    def hami_metrics(self) -> bytes:
        """The allocated part of each card and of each pod on it, under the names of HAMi."""

@final
class LimitRow:
    """One card of a limits page.

    Attributes:
        uuid: the card's UUID.
        memory_limit: bytes; None = no limit.
        share: percent of the card's time; None = no limit.
        mode: how the share holds.
        priority: the order among slices that compete for the card.
        context_memory: bytes that the driver takes for a process's context; None = unknown.
        granule: the driver takes requests of more than half of this many bytes in multiples of it,
            a power of two; None = it takes what is requested.
        injected_memory: bytes, the memory limit in the environment of the container; None = none.
        injected_share: the share there, in percent; None = none.
    """

    uuid: str
    memory_limit: int | None
    share: int | None
    mode: _Mode
    priority: _Priority
    context_memory: int | None
    granule: int | None
    injected_memory: int | None
    injected_share: int | None
    def __new__(
        cls,
        uuid: str,
        memory_limit: int | None = None,
        share: int | None = None,
        mode: _Mode = "hard",
        priority: _Priority = "normal",
        *,
        context_memory: int | None = None,
        granule: int | None = None,
        injected_memory: int | None = None,
        injected_share: int | None = None,
    ) -> Self: ...

@final
class LimitsPage:
    """The file with the limits of a slice. Its owner can change it; others can read it."""

    @staticmethod
    def create(
        path: str | PathLike[str], rows: Sequence[LimitRow], *, gang: bytes | None = None
    ) -> LimitsPage:
        """Create a page. The file must not exist.

        Args:
            path: the file.
            rows: the cards.
            gang: 16 bytes; slices with the same gang have leases together.
        """

    @staticmethod
    def open(path: str | PathLike[str]) -> LimitsPage: ...
    def gang(self) -> bytes | None:
        """The gang of the slice; None = it has none."""

    def rows(self) -> list[LimitRow]: ...
    def set_memory_limits(self, limits: Mapping[str, int | None]) -> None: ...
    def set_regimes(self, regimes: Mapping[str, tuple[int | None, _Mode, _Priority]]) -> None:
        """Set share, mode and priority by UUID; all of them come into force at once."""

@final
class GrantsPage:
    """The file in which the coordinator grants leases on the cards of a slice."""

    @staticmethod
    def create(path: str | PathLike[str]) -> None:
        """Create a page without grants. The file must not exist."""

@final
class ProcessUse:
    """The memory and time that one process of a slice uses; entry i is for the card of row i.

    Memory is in bytes. ``driver_memory`` is the part of ``memory`` that the driver has taken for
    itself. Times are in nanoseconds: ``used_ns`` is engine time, ``throttled_ns`` the
    time for which its threads waited to launch, ``debt_ns`` the engine time that it has used beyond
    its share and not yet paid back. ``last_used`` is when it last worked on the card, in seconds
    since 1970; None = never, or not measured.

    The pid is that of the process's own PID namespace (``pid_namespace``, an inode; 0 = unknown).
    Together with ``start_time`` (clock ticks since boot) it names one process, even if its pid is
    used again.
    """

    pid: int
    start_time: int
    pid_namespace: int
    alive: bool
    memory: list[int]
    driver_memory: list[int]
    refusals: list[int]
    used_ns: list[int]
    throttled_ns: list[int]
    debt_ns: list[int]
    last_used: list[float | None]

@final
class AccountSnapshot:
    """An account, read once, so that the processes and the sums of its rows belong together.

    ``refusals``, ``used_ns`` and ``throttled_ns`` include processes that have exited.
    ``memory_peak`` is the most of ``memory_used`` since the account was created.
    """

    processes: list[ProcessUse]
    memory_used: list[int]
    measured_memory: list[int]
    memory_peak: list[int]
    refusals: list[int]
    used_ns: list[int]
    throttled_ns: list[int]

@final
class Account:
    """The file with the memory and time that the processes of a slice use."""

    @staticmethod
    def create(path: str | PathLike[str]) -> Account: ...
    @staticmethod
    def open(path: str | PathLike[str]) -> Account: ...
    def snapshot(self) -> AccountSnapshot: ...
    def reclaim(self) -> int:
        """Release the memory of dead processes if it is time to; the number of bytes.

        It maps the file, so the processes of the slice must be trusted not to truncate it.
        """

def clock_ns() -> int:
    """Nanoseconds of the clock of the times in the files, which all processes of a machine share.

    It is the host's ``CLOCK_MONOTONIC``, also in a time namespace.
    """

def runtime_directory() -> Path:
    """The directory of this user's slices, if the user has named none.

    It is ``/tmp/hami-<uid>``, or ``/dev/shm/hami-<uid>-<device of /tmp>`` where the file system of
    ``/tmp`` loses locks (overlayfs).
    """

@final
class MemoryMeter:
    """Write into a slice's files what NVML shows of its processes.

    That is which dead processes' memory the driver has freed, and what it holds beyond the charges,
    such as for modules. Only one process may do so at a time, and no coordinator that reads sweeps.
    It maps the files of the slice, so the processes of the slice must be trusted not to truncate
    them.
    """

    def __new__(cls, directory: str | PathLike[str], measures: bool) -> MemoryMeter: ...
    def has_processes(self) -> bool:
        """Whether any process has joined the slice."""

    def update(self, sweep: bytes) -> None:
        """Compare the files with a sweep, as ``hami_py.gpu.sweep`` encodes it.

        Raises:
            DamagedFile: the files of the slice are damaged.
        """

    def release_ended(self) -> None:
        """Forget what was measured of processes that have ended."""
