"""What slices use, told in two ways from the same files.

*By card*, for who is in a slice or holds it and asks what may still be had (``hami.usage()``,
``Slice.usage()``): a ``Usage`` has a ``CardUsage`` for each card, and that a ``ProcessUsage`` for
each process that uses the card. The limits are those that hold, over all slices around it.

*By slice*, for who looks at all of them and asks who is there (``hami.list_slices()``, ``hami
ps``): a ``SliceInfo`` has its ``SliceCard``s, and beside them its ``SliceProcess``es, also those
that have not called CUDA; what one has on a card is a ``SliceProcessCard``. The limits are the
slice's own. These field names are those of ``hami ps --json``, and stay.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from hami_py.model.limits import Mode, Priority


@dataclass(frozen=True)
class ProcessUsage:
    """What one process of the slice holds on one card, and its engine time there.

    Attributes:
        pid: as the process itself sees it (its own PID namespace).
        alive: False = it has ended and its bytes have not been taken back yet.
        memory_used: bytes.
        refusals: how many of its requests were refused for the limit.
        engine_time: seconds for which the card's compute engine was busy with its kernels.
        throttled: seconds of wall time for which launches of it had to wait.
        debt: seconds that it has had before its time, and waits for now.
    """

    pid: int
    alive: bool
    memory_used: int
    refusals: int
    engine_time: float = 0.0
    throttled: float = 0.0
    debt: float = 0.0


@dataclass(frozen=True)
class CardUsage:
    """One card of the slice.

    Engine time is measured only where launches are regulated: where this slice, or another one with
    processes on the card, has a share.

    Attributes:
        uuid: the card.
        memory_limit: bytes; None = no limit.
        memory_used: bytes that the slice's processes hold together.
        memory_free: bytes that can still be had: what is left of every limit around this process
            and on the card itself. None = no limit, and the card cannot be asked.
        refusals: how many requests were refused for the limit, also to processes that are gone.
        processes: those that hold memory on this card, were refused it, or have engine time there.
        share: percent of the card's time that holds, 1 to 99; None = no limit.
        mode: how the share holds.
        priority: before or after whom it gets the card.
        engine_time: seconds for which the card's compute engine was busy with kernels of the slice,
            also of processes that are gone.
        throttled: seconds of wall time for which launches had to wait, summed over processes, also
            those that are gone.
        debt: seconds that its processes have had before their time, and wait for now.
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


@dataclass(frozen=True)
class Usage:
    """The usage of a slice; no cards for a process that is in none."""

    cards: tuple[CardUsage, ...]


SliceState: TypeAlias = Literal["running", "kept", "ending", "damaged"]
"""``running``: its maker, or whoever opened it, still holds it, or it is kept and processes are in
it. ``kept``: nobody is in it; it waits for the next, until ``hami rm``. ``ending``: its maker has
gone, and it goes with the last of its processes. ``damaged``: one of its files cannot be read; CUDA
is refused in it."""


@dataclass(frozen=True)
class SliceProcessCard:
    """What one process holds on one card, and its engine time there.

    Attributes:
        uuid: the card.
        memory_used: bytes.
        refusals: how many of its requests were refused for the limit.
        engine_time: seconds for which the card's compute engine was busy with its kernels.
        throttled: seconds of wall time for which launches of it had to wait.
        debt: seconds that it has had before its time, and waits for now.
    """

    uuid: str
    memory_used: int
    refusals: int
    engine_time: float = 0.0
    throttled: float = 0.0
    debt: float = 0.0


@dataclass(frozen=True)
class SliceProcess:
    """One process of a slice.

    Attributes:
        pid: as the process itself sees it (its own PID namespace).
        command: its command line; empty where it cannot be told (another PID namespace).
        cards: the cards on which it holds memory, was refused some, or has engine time; none for a
            process that has not called CUDA.
    """

    pid: int
    command: tuple[str, ...]
    cards: tuple[SliceProcessCard, ...]


@dataclass(frozen=True)
class SliceCard:
    """One card of a slice.

    Attributes:
        uuid: the card.
        index: its index in ``hami devices``; None where that cannot be told now.
        memory_limit: bytes; None = no limit.
        memory_used: bytes that the slice's processes hold together.
        refusals: how many requests were refused, also to processes that are gone.
        share: percent of the card's time that its programs may use, 1 to 99; None = no limit.
        mode: how the share holds.
        priority: before or after whom it gets the card.
        engine_time: seconds for which the card's compute engine was busy with its kernels, also
            those of processes that are gone; measured only where launches are regulated.
        throttled: seconds of wall time for which launches had to wait, summed over processes, also
            those that are gone.
        debt: seconds that its processes have had before their time, and wait for now.
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


@dataclass(frozen=True)
class SliceInfo:
    """One slice of this user, at one moment.

    Attributes:
        id: its unique name; the start of it is enough for ``hami run --join`` and ``hami rm``, if
            no other begins so.
        name: what its maker called it; None = nothing.
        directory: where its files are.
        state: see ``SliceState``.
        keep: it stays until it is removed.
        created: when it was made, in UTC, as ISO 8601 has it; None where that cannot be read.
        command: the command line that it was made for or by.
        cards: none where it is damaged.
        processes: those in it now, by pid.
        damage: what cannot be read, for a damaged one.
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
