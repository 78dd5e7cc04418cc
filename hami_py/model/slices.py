"""What a slice looks like from outside: what ``hami ps`` shows and ``hami.list_slices()`` returns.

The field names are those of ``hami ps --json`` and stay.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

SliceState: TypeAlias = Literal["running", "kept", "ending", "damaged"]
"""``running``: its maker, or whoever opened it, still holds it, or it is kept and processes are in
it. ``kept``: nobody is in it; it waits for the next, until ``hami rm``. ``ending``: its maker has
gone, and it goes with the last of its processes. ``damaged``: one of its files cannot be read; CUDA
is refused in it."""


@dataclass(frozen=True)
class SliceProcessCard:
    """What one process holds on one card.

    Attributes:
        uuid: the card.
        memory_used: bytes.
        refusals: how many of its requests were refused for the limit.
    """

    uuid: str
    memory_used: int
    refusals: int


@dataclass(frozen=True)
class SliceProcess:
    """One process of a slice.

    Attributes:
        pid: as the process itself sees it (its own PID namespace).
        command: its command line; empty where it cannot be told (another PID namespace).
        cards: the cards on which it holds memory or was refused some; none for a process that has
            not called CUDA.
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
    """

    uuid: str
    index: int | None
    memory_limit: int | None
    memory_used: int
    refusals: int


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
