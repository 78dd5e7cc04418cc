"""What a slice uses."""

from dataclasses import dataclass

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

    Engine time is measured only where launches are regulated: where this slice or another one that
    is active on the card has a share.

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
