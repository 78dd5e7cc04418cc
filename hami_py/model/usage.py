"""The usage of slices, in two views of the same files.

*By card* (``hami.usage()``, ``Slice.usage()``), for a program in a slice that needs to know how
much is left: a ``Usage`` has a ``CardUsage`` for each card, which has a ``ProcessUsage`` for each
process that uses the card. The limits are the effective ones, over all layers of slices.

*By slice* (``hami.list_slices()``, ``hami ps``), for an overview: a ``SliceInfo`` has a
``SliceCard`` for each card and a ``SliceProcess`` for each process, including processes that have
not called CUDA. A ``SliceProcess`` has a ``SliceProcessCard`` for each card that it uses. The
limits are the slice's own. The field names are those of ``hami ps --json`` and do not change.

*From its creation on* (``Slice.summary()``, ``hami run --summary``, ``hami ps --ended``): a
``Summary`` has a ``CardSummary`` for each card.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from hami_py.model.limits import Mode, Priority


@dataclass(frozen=True)
class ProcessUsage:
    """The memory and engine time of one process of the slice on one card.

    Attributes:
        pid: in the process's own PID namespace.
        alive: False = it has ended and its bytes are not released yet.
        memory_used: bytes, with ``driver_memory``.
        refusals: number of its requests that were refused because of the limit.
        engine_time: seconds in which the card's compute engine ran its kernels.
        throttled: seconds of wall time in which its launches had to wait.
        debt: seconds of engine time used in advance, for which it waits now.
        driver_memory: the bytes of ``memory_used`` that the driver has taken for itself.
    """

    pid: int
    alive: bool
    memory_used: int
    refusals: int
    engine_time: float = 0.0
    throttled: float = 0.0
    debt: float = 0.0
    driver_memory: int = 0


@dataclass(frozen=True)
class CardUsage:
    """One card of the slice.

    Engine time is measured only while launches are regulated: while this slice, or another one with
    processes on the card, has a share.

    Attributes:
        uuid: the card.
        memory_limit: bytes; None = no limit.
        memory_used: bytes that the slice's processes hold together, with ``driver_memory``.
        memory_free: bytes that can still be allocated: the least that is left under any limit
            around this process and on the card itself. None = no limit, and NVML does not report
            the card.
        refusals: number of requests refused because of the limit, including those of ended
            processes.
        processes: the processes that hold memory on this card, were refused it, or have engine time
            there.
        share: the effective percent of the card's time, 1 to 99; None = no limit.
        mode: how the share is enforced.
        priority: the order in which slices get the card.
        engine_time: seconds in which the card's compute engine ran kernels of the slice, including
            those of ended processes.
        throttled: seconds of wall time in which launches had to wait, summed over processes,
            including ended ones.
        debt: seconds of engine time used in advance, for which its processes wait now.
        driver_memory: the bytes of ``memory_used`` that the driver has taken for itself.
    """

    uuid: str
    memory_limit: int | None
    memory_used: int
    memory_free: int | None
    refusals: int
    processes: tuple[ProcessUsage, ...]
    share: int | None = None
    mode: Mode = "hard"
    priority: Priority = "normal"
    engine_time: float = 0.0
    throttled: float = 0.0
    debt: float = 0.0
    driver_memory: int = 0


@dataclass(frozen=True)
class Usage:
    """The usage of a slice; without cards for a process that is in no slice."""

    cards: tuple[CardUsage, ...]


SliceState: TypeAlias = Literal["running", "kept", "ending", "damaged"]
"""``running``: a process holds it (it created or opened it), or it is kept and has processes.
``kept``: it has no processes and remains until ``hami rm``. ``ending``: no process holds it; it is
removed after its last process has ended. ``damaged``: one of its files cannot be read, and CUDA is
refused in it."""


@dataclass(frozen=True)
class SliceProcessCard:
    """The memory and engine time of one process on one card.

    Attributes:
        uuid: the card.
        memory_used: bytes, with ``driver_memory``.
        refusals: number of its requests that were refused because of the limit.
        engine_time: seconds in which the card's compute engine ran its kernels.
        throttled: seconds of wall time in which its launches had to wait.
        debt: seconds of engine time used in advance, for which it waits now.
        driver_memory: the bytes of ``memory_used`` that the driver has taken for itself.
    """

    uuid: str
    memory_used: int
    refusals: int
    engine_time: float = 0.0
    throttled: float = 0.0
    debt: float = 0.0
    driver_memory: int = 0


@dataclass(frozen=True)
class SliceProcess:
    """One process of a slice.

    Attributes:
        pid: in the process's own PID namespace.
        command: its command line; empty if it is unknown (another PID namespace).
        cards: the cards on which it holds memory, was refused memory, or has engine time; empty for
            a process that has not called CUDA.
        bypass: why no limit holds for it although it uses the GPU: it has the driver, and not the
            preload library. None = there is no sign of that.
    """

    pid: int
    command: tuple[str, ...]
    cards: tuple[SliceProcessCard, ...]
    bypass: str | None = None


@dataclass(frozen=True)
class SliceCard:
    """One card of a slice.

    Attributes:
        uuid: the card.
        index: its index in ``hami devices`` when the slice was created; None = unknown.
        memory_limit: bytes; None = no limit.
        memory_used: bytes that the slice's processes hold together, with ``driver_memory``.
        refusals: number of refused requests, including those of ended processes.
        share: percent of the card's time that its programs may use, 1 to 99; None = no limit.
        mode: how the share is enforced.
        priority: the order in which slices get the card.
        engine_time: seconds in which the card's compute engine ran its kernels, including those of
            ended processes; measured only while launches are regulated.
        throttled: seconds of wall time in which launches had to wait, summed over processes,
            including ended ones.
        debt: seconds of engine time used in advance, for which its processes wait now.
        driver_memory: the bytes of ``memory_used`` that the driver has taken for itself.
        memory_peak: the most of ``memory_used`` since the slice was created.
    """

    uuid: str
    index: int | None
    memory_limit: int | None
    memory_used: int
    refusals: int
    share: int | None = None
    mode: Mode = "hard"
    priority: Priority = "normal"
    engine_time: float = 0.0
    throttled: float = 0.0
    debt: float = 0.0
    driver_memory: int = 0
    memory_peak: int = 0


@dataclass(frozen=True)
class SliceInfo:
    """One slice of this user at one moment.

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


@dataclass(frozen=True)
class CardSummary:
    """The use of a card by all processes of a slice together.

    Attributes:
        uuid: the card.
        memory_limit: bytes; None = no limit.
        memory_peak: the most bytes that were in use at one moment, with what the driver has taken
            for itself. It is not too low. Requests that were granted and refused at the same moment
            may count together.
        refusals: number of requests refused because of the limit.
        share: percent of the card's time, 1 to 99; None = no limit.
        engine_time: seconds in which the card's compute engine ran kernels of the slice; measured
            only while launches are regulated.
        throttled: seconds of wall time in which launches had to wait, summed over processes.
        index: its index in ``hami devices`` when the slice was created; None = unknown.
    """

    uuid: str
    memory_limit: int | None
    memory_peak: int
    refusals: int
    share: int | None
    engine_time: float
    throttled: float
    index: int | None = None


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
        cards: its cards.
    """

    id: str
    name: str | None
    command: tuple[str, ...]
    created: str
    ended: str
    seconds: float
    cards: tuple[CardSummary, ...]
