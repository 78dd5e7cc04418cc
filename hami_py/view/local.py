"""Reads one machine: its cards, and the slices on them."""

from __future__ import annotations

import logging
import platform
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from hami_py.errors import HamiError
from hami_py.model import Rates
from hami_py.monitor import Histories, History, NodeFigures, readings_of, used_shares
from hami_py.overview import NodeReport, Overview
from hami_py.view.picture import Shown, picture
from hami_py.view.session import Refused

_log = logging.getLogger(__name__)

_PERIOD_S = 1.0
_ASKED_S = 10.0


class Machine:
    """The view of this machine. It is read once a second while a page asks.

    Attributes:
        shown: what the page shows; ``None``: nothing was read yet.
        refused: always ``None``.
        problem: why the last reading failed; empty: it did not.
    """

    def __init__(self, read: Callable[[], NodeFigures]) -> None:
        self.shown: Shown | None = None
        self.refused: Refused | None = None
        self.problem = ""
        self._read = read
        self.name = platform.node()
        self._histories = Histories()
        self._rates = Rates[tuple[str, str, str, str]]()
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

    def take(self, reading: NodeFigures, now_s: float) -> None:
        """Takes a reading; ``now_s`` is of the monotonic clock."""
        engine = ((each.key, now_s, each.use.engine_time) for each in reading.containers)
        shares = self._rates.take(engine)
        slices = tuple(
            replace(each, node=self.name).with_share_used(shares[each.key])
            for each in reading.containers
        )
        figures = replace(reading, containers=slices)
        if self._histories.is_due(now_s):
            self._histories.take(readings_of(figures), now_s)
        used = used_shares(figures)
        cards = tuple(replace(each, share_used=used.get(each.uuid)) for each in figures.cards)
        overview = Overview((NodeReport(self.name, "", "", cards=cards),), slices)
        self.shown = picture(overview, now_s, title=self.name, is_machine=True)
