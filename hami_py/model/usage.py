"""What a slice uses."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ProcessUsage:
    """What one process of the slice holds on one card.

    Attributes:
        pid: as the process itself sees it (its own PID namespace).
        alive: False = it has ended and its bytes have not been taken back yet.
        memory_used: bytes.
        refusals: how many of its requests were refused for the limit.
    """

    pid: int
    alive: bool
    memory_used: int
    refusals: int


@dataclass(frozen=True)
class CardUsage:
    """One card of the slice.

    Attributes:
        uuid: the card.
        memory_limit: bytes; None = no limit.
        memory_used: bytes that the slice's processes hold together.
        memory_free: bytes that can still be had: what is left of every limit around this process
            and on the card itself. None = no limit, and the card cannot be asked.
        refusals: how many requests were refused for the limit, also to processes that are gone.
        processes: those that hold memory on this card or were refused it.
    """

    uuid: str
    memory_limit: int | None
    memory_used: int
    memory_free: int | None
    refusals: int
    processes: tuple[ProcessUsage, ...]


@dataclass(frozen=True)
class Usage:
    """The usage of a slice; no cards for a process that is in none."""

    cards: tuple[CardUsage, ...]
