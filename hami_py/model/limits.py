"""Limits on a card: the types, and how several limits combine."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from hami_py._native import format_memory

Mode: TypeAlias = Literal["hard", "soft"]
"""``hard``: a slice gets its share of the card's time and no more, even if the rest is idle.
``soft``: the share is a weight, and the slice may use idle time. Without a share the mode has no
effect."""

Priority: TypeAlias = Literal["low", "normal", "high"]
"""The order in which slices get a card: the highest first, whatever the shares are. A hard share
leaves the rest to lower priorities; a soft slice, or one without a share, may take all but 2 % of
the card's time."""

Level: TypeAlias = Literal["none", "preload", "kernel", "mig"]
"""The part that enforces a limit on memory: nothing, the preload library, the driver by control
group, or a MIG instance."""

TimeLevel: TypeAlias = Literal["none", "lease", "mps", "mig"]
"""The part that enforces a limit on time: nothing, the coordinator's leases, NVIDIA's MPS server,
or a MIG instance."""

LEVELS: tuple[Level, ...] = get_args(Level)
"""From the weakest to the strongest."""

MODES: tuple[Mode, ...] = get_args(Mode)
PRIORITIES: tuple[Priority, ...] = get_args(Priority)
"""From the lowest to the highest."""


@dataclass(frozen=True)
class CardLimit:
    """The limit on one card.

    Attributes:
        uuid: the card.
        memory: bytes; None = no limit but the card's own size.
        share: percent of the card's time, 1 to 99; None = no limit.
        mode: how the share is enforced. Without a share it has no effect.
        priority: the order in which slices get the card.
    """

    uuid: str
    memory: int | None = None
    share: int | None = None
    mode: Mode = "hard"
    priority: Priority = "normal"

    def __str__(self) -> str:
        memory = "no memory limit" if self.memory is None else format_memory(self.memory)
        time = regime(self.share, self.mode, self.priority)
        return memory if time == "-" else f"{memory}, {time}"


@dataclass(frozen=True)
class Limits:
    """The limits that hold for a process.

    Attributes:
        cards: one entry per card that the process may use. It may not use a card that is not
            listed, unless ``source`` is ``none``.
        source: where the limits come from: ``slice`` (``hami run``), ``environment`` (HAMi's
            variables) or ``none``.
        level: how strongly they are enforced in this process: ``preload`` if the preload library
            is loaded, ``none`` if it is not. The preload level limits cooperative programs; it does
            not protect against hostile ones.
    """

    cards: tuple[CardLimit, ...]
    source: Literal["slice", "environment", "none"]
    level: Literal["preload", "none"]


def lowest(values: Iterable[int | None]) -> int | None:
    """The lowest of several limits; None = no limit."""
    return min((value for value in values if value is not None), default=None)


def lowest_share(values: Iterable[tuple[int | None, Mode]]) -> tuple[int | None, Mode]:
    """The effective share of several, and its mode: the lowest, and of equal shares the hard one.

    Args:
        values: share in percent and mode, innermost last; None = no limit.
    """
    found = list(values)
    shares = [(share, mode) for share, mode in found if share is not None]
    if not shares:
        # No share is in effect. The innermost mode applies as soon as that slice has a share.
        return None, found[-1][1] if found else "hard"
    return min(shares, key=lambda value: (value[0], MODES.index(value[1])))


def lowest_priority(values: Iterable[Priority]) -> Priority:
    """The lowest of several priorities; ``normal`` where there is none."""
    return min(values, key=PRIORITIES.index, default="normal")


def regime(share: int | None, mode: Mode, priority: Priority) -> str:
    """A share for people: ``30%``, ``30% soft``, ``30% high``, ``high``; ``-`` = no share."""
    parts = [] if share is None else [f"{share}%", *([mode] if mode != "hard" else [])]
    parts += [priority] if priority != "normal" else []
    return " ".join(parts) or "-"
