"""The last hour of the cards of a node and the containers on them, at a fixed interval.

A value is in memory for each step of the hour. The number of containers on a node is bounded by the
slots of its cards, and so is the memory of their histories: about 2 KB for each.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from hami_py.model.pods.decoding import prepare
from hami_py.monitor.figures import NodeFigures, decode_answer, used_shares

STEP_S = 20.0
STEPS = 180
"""An hour, together with the seconds of a step."""

_UNKNOWN = -1.0

Key: TypeAlias = tuple[str, str, str, str]
"""Namespace, pod, container and card; a card alone has empty names."""


@dataclass(frozen=True)
class Reading:
    """The use of a card, or of a container on a card, at one moment.

    Attributes:
        memory: bytes; ``None``: unknown.
        share: the used part of the card's time; ``None``: unknown.
    """

    key: Key
    memory: float | None
    share: float | None


class Series(msgspec.Struct, frozen=True):
    """The values of the last hour, oldest first; the last one is of ``History.age_s`` ago.

    Attributes:
        namespace: of the pod; empty for a card.
        memory: bytes. A value is ``None`` where it is unknown.
        share: the used part of the card's time.
    """

    namespace: str
    pod: str
    container: str
    card: str
    memory: tuple[int | None, ...]
    share: tuple[float | None, ...]


class History(msgspec.Struct, frozen=True):
    """The last hour of a node.

    Attributes:
        step_s: the seconds between two values.
        age_s: how long ago the last ones were read.
        series: one for each card, and one for each container on a card.
    """

    step_s: float = STEP_S
    age_s: float = 0.0
    series: tuple[Series, ...] = ()


class Histories:
    """Keeps the last hour. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[Key, tuple[array[float], array[float]]] = {}
        self._at_s: float | None = None

    def is_due(self, now_s: float) -> bool:
        """Whether the next step has come; ``now_s`` is of any monotonic clock."""
        return self._at_s is None or now_s - self._at_s >= STEP_S

    def take(self, readings: Iterable[Reading], now_s: float) -> None:
        """Adds a reading of all; what is not in it is forgotten.

        Steps that were missed are unknown.
        """
        with self._lock:
            missed = 0 if self._at_s is None else round((now_s - self._at_s) / STEP_S) - 1
            kept: dict[Key, tuple[array[float], array[float]]] = {}
            for each in _summed(readings):
                memory, share = self._values.get(each.key) or (array("d"), array("f"))
                if len(memory):
                    gap = [_UNKNOWN] * min(STEPS, max(0, missed))
                    memory.extend(gap)
                    share.extend(gap)
                memory.append(_UNKNOWN if each.memory is None else each.memory)
                share.append(_UNKNOWN if each.share is None else each.share)
                del memory[:-STEPS], share[:-STEPS]
                kept[each.key] = memory, share
            self._values, self._at_s = kept, now_s

    def history(self, now_s: float) -> History:
        """The last hour."""
        with self._lock:
            series = tuple(
                Series(
                    *key,
                    memory=tuple(None if each < 0 else int(each) for each in memory),
                    share=tuple(None if each < 0 else round(each, 3) for each in share),
                )
                for key, (memory, share) in sorted(self._values.items())
            )
            at_s = now_s if self._at_s is None else self._at_s
            return History(STEP_S, now_s - at_s, series)


def _summed(readings: Iterable[Reading]) -> Iterable[Reading]:
    """One reading for each key: a pod may be created again before all processes have ended."""
    found: dict[Key, Reading] = {}
    for each in readings:
        first = found.get(each.key)
        found[each.key] = (
            each
            if first is None
            else Reading(each.key, _sum(first.memory, each.memory), _sum(first.share, each.share))
        )
    return found.values()


def _sum(one: float | None, other: float | None) -> float | None:
    """The sum; an unknown amount counts as nothing beside a known one."""
    if one is None or other is None:
        return one if other is None else other
    return one + other


def readings_of(figures: NodeFigures) -> list[Reading]:
    """The cards and containers of a node."""
    shares = used_shares(figures)
    cards = [
        Reading(("", "", "", card.uuid), card.memory_used, shares.get(card.uuid))
        for card in figures.cards
    ]
    return cards + [
        Reading(each.key, each.use.memory_used if each.is_known else None, each.share_used)
        for each in figures.containers
    ]


def decode_history(data: bytes) -> History:
    """The history that a node agent has sent.

    Raises:
        InvalidValue: the bytes are no history.
    """
    return decode_answer(data, History, "the history of a node agent")


prepare(History)
