"""The records of use: how much of a card a slice or a process uses.

``Use`` is the one record of it, with a card's memory and times, and all others hold it or extend
it. The account of a slice is read into it here (``use_of``, ``slice_card``).

*By card* (``hami.usage()``, ``Slice.usage()``), for a program in a slice that needs to know how
much is left: a ``Usage`` has a ``CardUsage`` for each card, which has a ``ProcessUsage`` for each
process that uses the card. The limits are the effective ones, over all layers of slices.

*By slice* (``hami.list_slices()``, ``hami ps``), for an overview: a ``SliceInfo`` has a
``SliceCard`` for each card and a ``SliceProcess`` for each process, including processes that have
not called CUDA. A ``SliceProcess`` has a ``Use`` for each card that it uses. The limits are the
slice's own. The field names are those of ``hami ps --json`` and do not change.

*From its creation on* (``Slice.summary()``, ``hami run --summary``, ``hami ps --ended``): a
``Summary`` has a ``SliceCard`` for each card.

*By row* (``hami top``, ``hami ps``, ``kubectl hami top pod``, the metrics, the web page): a
``SliceUse`` is a slice, or a container of a pod, on one of its cards. ``columns`` says what is
shown of it, and ``Rates`` measures its part of the card's time.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, Literal, TypeAlias, TypeVar

from hami_py._native import AccountSnapshot
from hami_py._native import ProcessUse as AccountProcess
from hami_py.model.limits import CardLimit, Level, Mode, Priority, TimeLevel, regime

_NS = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Use:
    """The use of one card by a process, or by all processes of a slice.

    Engine time is measured only while launches are regulated: while this slice, or another one with
    processes on the card, has a share.

    Attributes:
        uuid: the card.
        memory_used: bytes in use, with ``driver_memory``.
        driver_memory: the bytes of ``memory_used`` that the driver has taken for itself.
        refusals: the number of requests refused because of the limit. This number and the times of
            a slice include those of ended processes.
        engine_time: seconds in which the card's compute engine ran the kernels.
        throttled: seconds of wall time in which launches had to wait, summed over processes.
        debt: seconds of engine time used in advance, for which the processes wait now.
        last_used: when a living process last worked on the card, in seconds since 1970; None =
            unknown. It is known only in the outermost slice, and only while this slice has a share.
    """

    uuid: str
    memory_used: int = 0
    driver_memory: int = 0
    refusals: int = 0
    engine_time: float = 0.0
    throttled: float = 0.0
    debt: float = 0.0
    last_used: float | None = None


@dataclass(frozen=True, kw_only=True)
class ProcessUsage(Use):
    """The use of one card by one process of the slice.

    Attributes:
        pid: in the process's own PID namespace.
        alive: False = it has ended and its bytes are not released yet.
    """

    pid: int
    alive: bool


@dataclass(frozen=True, kw_only=True)
class SliceCard(Use):
    """The limits of a slice on one card, and what it uses of it.

    Attributes:
        index: the card's index in ``hami devices`` when the slice was created; None = unknown.
        memory_limit: bytes; None = no limit.
        memory_peak: the most bytes that were in use at one moment since the slice was created. It
            is not too low. Requests that were granted and refused at the same moment may count
            together.
        share: the percent of the card's time that its programs may use, 1 to 99; None = no limit.
        mode: how the share is enforced.
        priority: the order in which slices get the card.
    """

    index: int | None = None
    memory_limit: int | None = None
    memory_peak: int = 0
    share: int | None = None
    mode: Mode = "hard"
    priority: Priority = "normal"


@dataclass(frozen=True, kw_only=True)
class CardUsage(SliceCard):
    """One card of the slice that a program is in; its limits are the effective ones.

    Attributes:
        memory_free: bytes that can still be allocated: the least that is left under any limit
            around this process and on the card itself. None = no limit, and NVML does not report
            the card.
        processes: the processes that hold memory on this card, were refused it, or have engine time
            there.
    """

    memory_free: int | None = None
    processes: tuple[ProcessUsage, ...] = ()


@dataclass(frozen=True)
class Usage:
    """The usage of a slice; without cards for a process that is in no slice."""

    cards: tuple[CardUsage, ...]


def use_of(process: AccountProcess, row: int, limit: CardLimit) -> Use | None:
    """The use of a row's card by a process of an account; None if it has never used the card."""
    times = (process.used_ns[row], process.throttled_ns[row], process.debt_ns[row])
    if not any((process.memory[row], process.refusals[row], *times[:2])):
        return None
    return Use(
        uuid=limit.uuid,
        memory_used=process.memory[row],
        driver_memory=process.driver_memory[row],
        refusals=process.refusals[row],
        engine_time=times[0] / _NS,
        throttled=times[1] / _NS,
        debt=times[2] / _NS,
        last_used=_last_used([process], row, limit),
    )


def slice_card(
    account: AccountSnapshot | None, row: int, limit: CardLimit, index: int | None = None
) -> SliceCard:
    """The limits of a slice on a card, and what its account has in this row, if there is one."""
    card = SliceCard(
        uuid=limit.uuid,
        index=index,
        memory_limit=limit.memory,
        share=limit.share,
        mode=limit.mode,
        priority=limit.priority,
    )
    if account is None:
        return card
    living = [process for process in account.processes if process.alive]
    measured = account.measured_memory[row] if living else 0
    return replace(
        card,
        memory_used=account.memory_used[row],
        driver_memory=measured + sum(process.driver_memory[row] for process in living),
        memory_peak=account.memory_peak[row],
        refusals=account.refusals[row],
        engine_time=account.used_ns[row] / _NS,
        throttled=account.throttled_ns[row] / _NS,
        debt=sum(process.debt_ns[row] for process in living) / _NS,
        last_used=_last_used(living, row, limit),
    )


def _last_used(processes: Iterable[AccountProcess], row: int, limit: CardLimit) -> float | None:
    if limit.share is None:
        return None  # Processes may work now without being measured.
    return max((process.last_used[row] or 0.0 for process in processes), default=0.0) or None


SliceState: TypeAlias = Literal["running", "kept", "ending", "damaged"]
"""``running``: a process holds it (it created or opened it), or it is kept and has processes.
``kept``: it has no processes and remains until ``hami rm``. ``ending``: no process holds it; it is
removed after its last process has ended. ``damaged``: one of its files cannot be read, and CUDA is
refused in it."""


@dataclass(frozen=True)
class SliceProcess:
    """One process of a slice.

    Attributes:
        pid: in our PID namespace; in the process's own if it is not found in ours.
        command: its command line; empty if it is unknown (not found in ours).
        cards: the cards on which it holds memory, was refused memory, or has engine time; empty for
            a process that has not called CUDA.
        bypass: why no limit holds for it although it uses the GPU: it has the driver, and not the
            preload library. None = there is no sign of that.
        user: the name or the number of the user who runs it; None = unknown.
    """

    pid: int
    command: tuple[str, ...]
    cards: tuple[Use, ...]
    bypass: str | None = None
    user: str | None = None


@dataclass(frozen=True)
class SliceInfo:
    """One slice at one moment.

    Attributes:
        id: its unique id. ``hami run --join`` and ``hami rm`` accept the start of it, if it is
            unique.
        name: its name; None = it has no name.
        directory: the directory of its files.
        state: see ``SliceState``.
        keep: it remains until it is removed.
        created: when it was created, in UTC, in ISO 8601; None if that cannot be read.
        command: the command line for which, or by which, it was created.
        cards: its cards; empty if it is damaged.
        processes: its current processes, by pid.
        damage: what cannot be read, if it is damaged.
        gang: the name of its gang; None = it has none.
        user: the users who run its processes, or without processes the user who has created it;
            None = unknown.
        owner: the user whose slice it is, if the service of a machine has made it.
    """

    id: str
    name: str | None
    directory: Path
    state: SliceState
    keep: bool
    created: str | None
    command: tuple[str, ...]
    cards: tuple[SliceCard, ...]
    processes: tuple[SliceProcess, ...]
    damage: str | None
    gang: str | None = None
    user: str | None = None
    owner: str | None = None


@dataclass(frozen=True)
class Summary:
    """The use of all its cards by a slice since its creation.

    Attributes:
        id: its unique id.
        name: its name; None = it has no name.
        command: the command line for which, or by which, it was created.
        created: when it was created, in UTC, in ISO 8601.
        ended: when this was read: for a slice that has ended, when it was removed.
        seconds: the wall time in between.
        cards: its cards, with what is in use when this is read.
    """

    id: str
    name: str | None
    command: tuple[str, ...]
    created: str
    ended: str
    seconds: float
    cards: tuple[SliceCard, ...]


@dataclass(frozen=True, kw_only=True)
class SliceUse:
    """A slice on one of its cards: of this machine, or a container of a pod.

    Attributes:
        use: its limits, and what it uses.
        pod: the pod's name; without a cluster, the slice's name or the beginning of its id.
        namespace: the pod's.
        container: the container's name.
        node: the node's name.
        id: the slice's id; empty for a container.
        is_known: whether the use is known; if not, only the limits in ``use`` are valid.
        share_used: the part of the card's time that it has used in the last second or two, 0 to 1;
            None = unknown.
        card_allocated: the part of the card that a container has, 0 to 1: the larger one of its
            parts of the memory and of the time. None = unknown, or the container has ended.
        processes: how many it has; of a container, those that use the library. None = unknown, or
            the container has not started.
        level: what enforces the memory limit of a container; None = unknown.
        time_level: what enforces its limit on time; None = unknown.
        enforcement: both, and why nothing stronger does, in one sentence; None = unknown.
        state: the slice's state; empty for a container.
        user: who runs its programs; None = unknown.
        command: its command line, on one line; None = unknown.
    """

    use: SliceCard
    pod: str
    namespace: str = ""
    container: str = ""
    node: str = ""
    id: str = ""
    is_known: bool = True
    share_used: float | None = None
    card_allocated: float | None = None
    processes: int | None = None
    level: Level | None = None
    time_level: TimeLevel | None = None
    enforcement: str | None = None
    state: str = ""
    user: str | None = None
    command: str | None = None

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Which one it is: namespace, pod, container, card."""
        return self.namespace, self.pod, self.container, self.use.uuid

    @property
    def used(self) -> SliceCard | None:
        """The limits and the use; None if the use is unknown."""
        return self.use if self.is_known else None

    @property
    def memory_part(self) -> float | None:
        """The used part of the memory limit; None = unknown, or no limit."""
        limit = self.use.memory_limit
        return self.use.memory_used / limit if limit and self.is_known else None

    @property
    def regime(self) -> str:
        """The share, how it is enforced, and the priority, as text."""
        return regime(self.use.share, self.use.mode, self.use.priority)

    def with_another(self, other: "SliceUse") -> "SliceUse":
        """With the use of another MIG instance of the same card, which the container has too."""
        one, two = self.use, other.use
        use = replace(
            one,
            memory_limit=(one.memory_limit or 0) + (two.memory_limit or 0),
            memory_used=one.memory_used + two.memory_used,
            memory_peak=one.memory_peak + two.memory_peak,
            driver_memory=one.driver_memory + two.driver_memory,
            refusals=one.refusals + two.refusals,
            engine_time=one.engine_time + two.engine_time,
        )
        parts = [self.card_allocated, other.card_allocated]
        known = [part for part in parts if part is not None]
        return replace(self, use=use, card_allocated=sum(known) if known else None)

    def with_share_used(self, part: float | None) -> "SliceUse":
        """With the part of the card's time that was measured."""
        # Without a share, no growth can also mean that engine time is not measured.
        is_known = part or self.use.share is not None
        return replace(self, share_used=part if is_known else None)

    @property
    def share_limit(self) -> float | None:
        """The part of the card's time that it may use; None = no limit."""
        return None if self.use.share is None else self.use.share / 100

    @property
    def share_soft(self) -> bool | None:
        """Whether the share is soft; None = it has no share, or has not started."""
        has_one = self.use.share is not None and self.processes is not None
        return self.use.mode == "soft" if has_one else None

    @property
    def history(self) -> None:
        """Each view that shows it has its own."""


@dataclass(frozen=True)
class NodeCard:
    """A card of a node or of this machine, and what is in use of it; None = unknown.

    Attributes:
        uuid: its UUID.
        index: its index in NVML; None = its node no longer publishes it.
        model: its name in NVML.
        memory: all of its memory, in bytes.
        memory_used: the part that is in use, by NVML.
        memory_allocated: the part that is allocated to containers.
        share_allocated: the allocated part of its time, 0 to 1.
        foreign: bytes that no allocation covers.
        healthy: new pods may get it.
        state: ``schedulable``, ``cordoned``, ``unhealthy`` or ``missing``; empty without a cluster.
        share_used: the part of its time that its containers have used in the last second or two.
        containers: how many containers have part of it.
    """

    uuid: str
    index: int | None
    model: str
    memory: int
    memory_used: int | None = None
    memory_allocated: int | None = None
    share_allocated: float | None = None
    foreign: int | None = None
    healthy: bool | None = None
    state: str = ""
    share_used: float | None = None
    containers: int | None = None


K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class _Rate:
    at_s: float
    engine_time: float
    share_used: float | None = None


class Rates(Generic[K]):
    """Measures which part of a card's time slices use, between two readings.

    Args:
        least_s: the seconds between the two readings, at least.
    """

    def __init__(self, least_s: float = 0.0) -> None:
        self._least_s = least_s
        self._rates: dict[K, _Rate] = {}

    def take(self, readings: Iterable[tuple[K, float, float]]) -> dict[K, float | None]:
        """The used parts, 0 to 1, after a reading of all; None = there was no earlier reading.

        What is not in the reading is forgotten.

        Args:
            readings: key, time in seconds of any monotonic clock, and engine time in seconds.
        """
        self._rates = {key: self._after(key, at_s, time) for key, at_s, time in readings}
        return {key: rate.share_used for key, rate in self._rates.items()}

    def _after(self, key: K, at_s: float, engine_time: float) -> _Rate:
        before = self._rates.get(key)
        if before is None:
            return _Rate(at_s, engine_time)
        elapsed_s = at_s - before.at_s
        if elapsed_s <= 0 or elapsed_s < self._least_s:
            return before
        # Not below 0: while a process ends, one reading may count its time in neither place.
        share = min(1.0, max(0.0, engine_time - before.engine_time) / elapsed_s)
        return _Rate(at_s, engine_time, share)
