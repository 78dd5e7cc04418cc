"""What a slice may use."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from hami_py._native import format_memory


@dataclass(frozen=True)
class CardLimit:
    """The limit on one card.

    Attributes:
        uuid: the card.
        memory: bytes; None = no limit but the card's own size.
        share: percent of the card's time, 1 to 100; None = no limit.
    """

    uuid: str
    memory: int | None = None
    share: int | None = None

    def __str__(self) -> str:
        memory = "no memory limit" if self.memory is None else format_memory(self.memory)
        return memory if self.share is None else f"{memory}, {self.share} %"


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
