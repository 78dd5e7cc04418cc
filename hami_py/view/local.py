"""Reads one machine: its cards, and the slices on them."""

from __future__ import annotations

import logging
import platform
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from hami_py.errors import HamiError
from hami_py.monitor import Histories, History, Reading
from hami_py.overview import CardReport, ContainerReport, NodeReport, Overview
from hami_py.view.picture import Shown, picture
from hami_py.view.session import Refused

_log = logging.getLogger(__name__)

_PERIOD_S = 1.0
_ASKED_S = 10.0


@dataclass(frozen=True)
class SliceReading:
    """A slice on one of its cards: its figures, and for how long the card has run its kernels."""

    report: ContainerReport
    engine_s: float


@dataclass(frozen=True)
class MachineReading:
    """The machine's cards, and the slices on them."""

    cards: Sequence[CardReport]
    slices: Sequence[SliceReading]


class Machine:
    """The view of this machine. It is read once a second while a page asks.

    Args:
        read: reads the machine.

    Attributes:
        name: the machine's name.
        shown: what the page shows; ``None``: nothing was read yet.
        refused: always ``None``.
        problem: why the last reading failed; empty: it did not.
    """

    def __init__(self, read: Callable[[], MachineReading]) -> None:
        self.shown: Shown | None = None
        self.refused: Refused | None = None
        self.problem = ""
        self._read = read
        self.name = platform.node()
        self._histories = Histories()
        self._engine: dict[tuple[str, str], tuple[float, float]] = {}
        self._asked_at = time.monotonic()
        self._asked, self._stopping = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="machine", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stopping.set()
        self._asked.set()
        self._thread.join(5.0)

    def ask(self) -> None:
        """A page asks."""
        self._asked_at = time.monotonic()
        self._asked.set()

    def history(self, _: str, now_s: float | None = None) -> History:
        """The time since this program began, at most the last hour."""
        return self._histories.history(time.monotonic() if now_s is None else now_s)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.take(self._read(), time.monotonic())
                self.problem = ""
            except (HamiError, OSError) as error:
                _log.warning("%s", error)
                self.problem = str(error)
            except Exception as error:
                _log.exception("this machine cannot be read")
                self.problem = str(error)
            self._stopping.wait(_PERIOD_S)
            self._wait_for_a_page()

    def _wait_for_a_page(self) -> None:
        """Until a page asks, or a step of the history is due."""
        while not self._stopping.is_set():
            now = time.monotonic()
            if now - self._asked_at < _ASKED_S or self._histories.is_due(now):
                return
            self._asked.clear()
            self._asked.wait(_PERIOD_S)

    def take(self, reading: MachineReading, now_s: float) -> None:
        """Takes a reading; ``now_s`` is of the monotonic clock."""
        slices = [self._rated(each, now_s) for each in reading.slices]
        self._engine = {_key(each.report): (now_s, each.engine_s) for each in reading.slices}
        cards = [_card(card, slices) for card in reading.cards]
        node = NodeReport(self.name, "", "", cards=tuple(cards))
        placed = [msgspec.structs.replace(each, node=self.name) for each in slices]
        if self._histories.is_due(now_s):
            readings = [
                Reading(("", "", "", card.uuid), card.memory_used, card.share_used)
                for card in cards
            ]
            readings += [
                Reading(
                    (each.namespace, each.pod, each.container, each.card),
                    each.memory_used,
                    each.share_used,
                )
                for each in placed
            ]
            self._histories.take(readings, now_s)
        overview = Overview((node,), tuple(placed))
        self.shown = picture(overview, now_s, title=self.name, is_machine=True)

    def _rated(self, slice_: SliceReading, now_s: float) -> ContainerReport:
        """The slice with the part of the card's time that it has used since the last reading."""
        at_s, engine_s = self._engine.get(_key(slice_.report), (now_s, 0.0))
        if now_s <= at_s:
            return slice_.report
        # Not below 0: while a process ends, its time may count in neither place.
        rate = max(0.0, slice_.engine_s - engine_s) / (now_s - at_s)
        return msgspec.structs.replace(slice_.report, share_used=rate)


def _key(report: ContainerReport) -> tuple[str, str]:
    return report.pod, report.card


def _card(card: CardReport, slices: Sequence[ContainerReport]) -> CardReport:
    here = [each for each in slices if each.card == card.uuid]
    shares = [each.share_used for each in here if each.share_used is not None]
    return msgspec.structs.replace(
        card, containers=len(here), share_used=sum(shares) if shares or not here else None
    )
