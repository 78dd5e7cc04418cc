"""The Rust core: quantities, the files of a slice, the coordinator, and the cluster allocator.

It raises ``hami_py.errors.InvalidValue``, ``DamagedFile`` and ``Unfit``, and ``OSError`` with a
file name.
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Final, Literal, final

from typing_extensions import Self

__all__ = [
    "HAMI_MEMORY_LIMITS",
    "HAMI_SHARE_LIMITS",
    "MAX_CARDS",
    "Account",
    "AccountSnapshot",
    "Allocator",
    "GrantsPage",
    "HamiLimit",
    "HamiVariables",
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
"""The most cards that a slice can have: the rows of its limits page."""

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

    def limit(self, number: int | None) -> HamiLimit:
        """The limits of the card of this number; where it is not known, the lowest of all."""

def coordinate(runtime: str | PathLike[str], linger_seconds: float) -> None:
    """Grant turns on the cards to the slices of a runtime directory.

    It runs on the calling thread until there has been no slice for this many seconds. The caller
    makes sure that only one process at a time does this for a directory. No Python code runs in the
    meantime, signal handlers included: end it with a signal that has none.

    Raises:
        OSError: it cannot start.
    """

@final
class Allocator:
    """Which pod may have which card: fit, score, hold, reserve, release, over all nodes.

    JSON comes and goes as bytes; ``hami_py.model.pods.wire`` has its types, by name below. Memory
    is in MiB, cores are percent of one card, times are nanoseconds of one clock of the caller's.
    A node has at most 64 cards, and a pod at most 64 containers that ask for some.

    Every method that is given JSON raises ``InvalidValue`` where it cannot be meant, with the
    field; no other does. Its state is in memory only. Methods may be called from several threads;
    they take turns, without the interpreter's lock.
    """

    def __new__(cls) -> Self: ...
    @staticmethod
    def restore(snapshot: bytes) -> Allocator:
        """The state that ``snapshot`` wrote.

        Raises:
            InvalidValue: it is no snapshot, or of another version.
        """

    def set_node(self, node: bytes) -> None:
        """A ``Node`` as its node agent publishes it; pods that are placed there stay.

        Raises:
            InvalidValue: a number is out of range, a card is there twice, or there are too many.
        """

    def remove_node(self, name: str) -> None:
        """A node is gone; what is placed there counts again when it returns."""

    def set_quota(self, quota: bytes) -> None:
        """A ``Quota``, new or changed.

        Raises:
            InvalidValue: it is none.
        """

    def remove_quota(self, namespace: str, name: str) -> None:
        """A quota object is gone."""

    def place(self, request: bytes, assignment: bytes, started: bool) -> None:
        """What the API says is bound, in place of anything held or reserved for the pod.

        The same again changes nothing. It is taken as it is, also where it is too much for a card.

        Args:
            request: a ``PodRequest``.
            assignment: its ``Assignment``.
            started: its ordinary init containers are done, and run no more.

        Raises:
            InvalidValue: one of them is none, or they are not of one pod.
        """

    def remove(self, uid: str) -> None:
        """A pod is deleted or has ended."""

    def release(self, uid: str) -> None:
        """Give up what is held or reserved for a pod; what is bound stays."""

    def unhold(self, uid: str) -> None:
        """End the hold for a pod; what is reserved or bound stays."""

    def expire(self, now_ns: int) -> int:
        """End holds whose time is over: how many have ended so since there is this allocator."""

    def returned(self, now_ns: int) -> int:
        """How often so far a namespace's time for looking came back after pods were refused for it.

        Then they might as well be tried again. Once in 30 s at most.
        """

    def filter(
        self, request: bytes, names: list[str] | None, now_ns: int
    ) -> tuple[list[str], dict[str, str], dict[str, str]]:
        """Nodes that do, in the order given (None: all, by name), and why the others do not.

        The reasons are of nodes that are full, where other pods' going may help, and of those where
        no eviction would: they would not do empty either, a quota is used up, or the namespace's
        time for looking is. They are brief, and equal where only figures differ; ``explain`` has
        the figures. Where all nodes are asked about nothing bounds how long that takes.

        Raises:
            InvalidValue: it is no ``PodRequest``.
        """

    def only_promised(self, request: bytes, names: list[str], now_ns: int, soon_ns: int) -> bool:
        """Whether a node would do, were it not for cards promised to others for a moment.

        That is what is reserved, or held until ``soon_ns`` at most.

        Raises:
            InvalidValue: it is no ``PodRequest``.
        """

    def score(
        self, request: bytes, names: list[str], now_ns: int, hold_ns: int
    ) -> list[tuple[str, int]]:
        """0 to 10,000 for each node, 0 where the pod does not fit.

        The best one's cards are held for ``hold_ns``; 0 holds none. ``explain`` has the same on a
        scale of 0 to 100.

        Raises:
            InvalidValue: it is no ``PodRequest``.
        """

    def filter_names(self, request: bytes, names: bytes, now_ns: int) -> tuple[int, bool, bytes]:
        """``filter`` of a JSON list of names: ``ExtenderFilterResult``, as JSON.

        Before it, how many nodes do, and whether that is all: with several containers and linked
        cards looking at all nodes may take too long. What was found out is remembered, so asking
        again goes on where this ended. Where a namespace's pods have taken too long together it is
        all for now: nodes that were not looked at are among those that do not do.

        Raises:
            InvalidValue: it is no ``PodRequest``, or the names are no JSON list.
        """

    def prioritize_names(self, request: bytes, names: bytes, now_ns: int, hold_ns: int) -> bytes:
        """``score`` of a JSON list of names: ``HostPriorityList``, as JSON.

        10 is the best alone, which is held. The others have 0 to 9, by where their scores lie
        between the lowest and the highest of these nodes; where all are equal, 9.

        Raises:
            InvalidValue: it is no ``PodRequest``, or the names are no JSON list.
        """

    def reserve(self, request: bytes, node: str, now_ns: int) -> bytes:
        """Promise cards on a node: the ``Assignment``. The same again for the same pod and node.

        Raises:
            Unfit: the node does not take the pod, with the reason; so it is with one that is not
                there, and with a pod that is bound to another.
            InvalidValue: it is no ``PodRequest``.
        """

    def victims(
        self, request: bytes, node: str, candidates: bytes, now_ns: int
    ) -> list[str] | None:
        """UIDs of the pods that would have to go, fewest and lowest first; None: it would not help.

        What is asked for one pod at one time is one question, whatever nodes it is about. Where its
        namespace's pods have taken too long together the answer for further nodes is None, too.

        Args:
            request: a ``PodRequest``.
            node: where.
            candidates: a list of ``{"uid": …, "priority": …, "pdb_violating": …, "chosen": …}``.
                Those of no lower priority than the request's are never chosen; ``chosen`` go in
                any case.
            now_ns: the same for all nodes of one question.

        Raises:
            InvalidValue: one of these is none.
        """

    def preemption_is_over(self, uid: str, now_ns: int) -> bool:
        """Whether that question has taken all that it may: no victims are looked for any more."""

    def explain(self, request: bytes, node: str) -> bytes:
        """Every card of a node: room, or why not; plan and score if the pod fits.

        It is a ``hami_py.scheduler.explanation.NodeView``; its score is ``score``'s in hundreds.

        Raises:
            InvalidValue: it is no ``PodRequest``.
        """

    def snapshot(self) -> bytes:
        """The whole state, for ``restore``."""

    def digest(self) -> str:
        """Equal for equal states, however they came about."""

    def usage(self) -> bytes:
        """What is given on each card of each node, and to which pods, in MiB, percent and slots.

        The types are those of native/allocator/src/questions/usage.rs.
        """

    def node_metrics(self) -> bytes:
        """How full the nodes are, in Prometheus' text format.

        Others that ask have their turn every few hundred nodes: it is not of one instant.
        """

    def card_metrics(self) -> bytes:
        """How full each card is, likewise."""

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
    """The file with the limits of a slice. Its owner can change it; others can read it."""

    @staticmethod
    def create(path: str | PathLike[str], rows: Sequence[LimitRow]) -> LimitsPage: ...
    @staticmethod
    def open(path: str | PathLike[str]) -> LimitsPage: ...
    def rows(self) -> list[LimitRow]: ...
    def set_memory_limits(self, limits: Mapping[str, int | None]) -> None: ...
    def set_regimes(self, regimes: Mapping[str, tuple[int | None, _Mode, _Priority]]) -> None:
        """Set share, mode and priority by UUID; all of them come into force at once."""

@final
class GrantsPage:
    """The file in which the coordinator grants turns on the cards of a slice."""

    @staticmethod
    def create(path: str | PathLike[str]) -> None:
        """Create a page without grants. The file must not exist."""

@final
class ProcessUse:
    """The memory and time that one process of a slice uses; entry i is for the card of row i.

    Memory is in bytes, times are in nanoseconds: ``used_ns`` is engine time, ``throttled_ns`` the
    time for which its threads waited to launch, ``debt_ns`` the engine time that it has used beyond
    its share and not yet paid back.

    The pid is that of the process's own PID namespace (``pid_namespace``, an inode; 0 = unknown).
    Together with ``start_time`` (clock ticks since boot) it names one process, even if its pid is
    used again.
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
    """An account, read once, so that the processes and the sums of its rows belong together.

    ``refusals``, ``used_ns`` and ``throttled_ns`` include processes that have exited.
    """

    processes: list[ProcessUse]
    memory_used: list[int]
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
