"""What a slice may use."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from hami_py._native import format_memory

Mode: TypeAlias = Literal["hard", "soft"]
"""``hard``: of the card's time the share and no more, also where the rest is idle. ``soft``: the
share is a weight; time that nobody else wants is lent. Without a share it says nothing."""

Priority: TypeAlias = Literal["low", "normal", "high"]
"""Whose turn it is where several want the card: the higher first, whatever the shares. A hard share
leaves the rest to the lower; a soft slice, or one without a share, may take all there is."""

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
        mode: how the share holds. Without a share it says nothing.
        priority: before or after whom it gets the card.
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
        cards: one entry per card that may be used; a card that is not listed may not be, unless
            ``source`` is ``none``.
        source: who set them: ``slice`` (``hami run``), ``environment`` (HAMi's variables) or
            ``none``.
        level: how strongly they are enforced in this process: ``preload`` where our library is
            loaded, ``none`` where it is not. The preload level holds a cooperative program; it is
            no wall against a hostile one.
    """

    cards: tuple[CardLimit, ...]
    source: Literal["slice", "environment", "none"]
    level: Literal["preload", "none"]


def lowest(values: Iterable[int | None]) -> int | None:
    """The lowest of several limits, where None is no limit."""
    return min((value for value in values if value is not None), default=None)


def lowest_share(values: Iterable[tuple[int | None, Mode]]) -> tuple[int | None, Mode]:
    """The share that holds where several do, and how: the lowest, and of equal ones the hard one.

    Args:
        values: share in percent and mode, innermost last; None = no limit.
    """
    found = list(values)
    shares = [(share, mode) for share, mode in found if share is not None]
    if not shares:
        # Nothing holds; it says what would, if the innermost were given a share.
        return None, found[-1][1] if found else "hard"
    return min(shares, key=lambda value: (value[0], MODES.index(value[1])))


def lowest_priority(values: Iterable[Priority]) -> Priority:
    """The lowest of several priorities; ``normal`` where there is none."""
    return min(values, key=PRIORITIES.index, default="normal")


def regime(share: int | None, mode: Mode, priority: Priority) -> str:
    """A share as people read it: ``30%``, ``30% soft``, ``30% high``, ``high``; ``-`` = none."""
    parts = [] if share is None else [f"{share}%", *([mode] if mode != "hard" else [])]
    parts += [priority] if priority != "normal" else []
    return " ".join(parts) or "-"
