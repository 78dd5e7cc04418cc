"""The agent while it acts: its parts, and the loop that keeps the node as it should be."""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from hami_py.agent.coordinator import Coordinator
from hami_py.agent.figures import Figures
from hami_py.agent.holds import Holds
from hami_py.agent.node import NodeStore
from hami_py.agent.observer import Observer
from hami_py.agent.pods import PodStore
from hami_py.agent.preparation import Preparation
from hami_py.agent.release import release_ended
from hami_py.agent.reporter import Reporter
from hami_py.agent.settings import AgentSettings
from hami_py.agent.state import Cards, NodeState
from hami_py.errors import DamagedFile, HamiError
from hami_py.gpu.health import NOT_LISTED, Health
from hami_py.gpu.inventory import Inventory
from hami_py.gpu.sweep import Sweeper, writer
from hami_py.kube import ApiServer, Event, EventWriter, Reference
from hami_py.monitor import exposition
from hami_py.node import cdi, library, mounts
from hami_py.node.decision import assigned_on
from hami_py.node.devices import device_ids
from hami_py.node.known_cards import read_cards, write_cards
from hami_py.node.ledger import Ledger, set_aside
from hami_py.node.nvidia_ctk import make_specification
from hami_py.node.slots import Slots
from hami_py.plugin.devices import DeviceList
from hami_py.plugin.registration import Registration

__all__ = ["Acting", "Known"]

_log = logging.getLogger(__name__)

_MAKE_AGAIN_S = 60.0
"""How often a CDI specification is made while a card has none."""


@dataclass(frozen=True)
class Known:
    """What an agent knows of its node before it acts.

    Attributes:
        cards: the cards.
        pods: the pods, followed.
        node: the node's own object, followed.
    """

    cards: Cards
    pods: PodStore
    node: NodeStore


class _Part(Protocol):
    def start(self) -> None: ...

    def stop(self) -> None: ...


class Acting:
    """The parts of an agent whose turn it is.

    Args:
        api: the API server.
        settings: how the agent runs.
        known: what is known of the node.
        events: writes events.

    Raises:
        StateError: the node's files cannot be used.
    """

    def __init__(
        self, api: ApiServer, settings: AgentSettings, known: Known, events: EventWriter
    ) -> None:
        self._settings, self._events = settings, events
        self._wake = threading.Event()
        self._node = Reference("Node", settings.node, settings.node)
        self._state = self._open(known)
        self._lost = self._add_known_cards()
        self._made_at = float("-inf")
        self._holds = Holds()
        self._devices = DeviceList()
        self._health = Health(self.wake)
        self._reporter = Reporter(api, settings, self._state, self._holds, events)
        self._observer = Observer(
            *(self._state, events.write, self._node, self.wake),
            period_s=settings.period_s,
            slots=settings.slots,
            killed=settings.killed,
        )
        self._registration = self._plugin()
        self._figures = Figures(settings.node, self._state, self._observer, self._holds)
        self._coordinator = Coordinator(settings.paths.runtime)

    @property
    def ended_threads(self) -> bool:
        """Whether a thread has ended by a fault; only a restart can replace it."""
        return not self._reporter.is_running

    @property
    def not_ready(self) -> str | None:
        """Why the node's cards cannot be given to containers; None = they can."""
        if self._registration.conflict is not None:
            return f"not registered: {self._registration.conflict}"
        if not self._registration.is_registered:
            return "not registered: the log has the reason"
        return self._missing_specifications()

    def metrics(self) -> bytes:
        """The node's figures in Prometheus' text format."""
        return exposition(self._figures.collect(registered=self._registration.is_registered))

    def unassigned(self) -> dict[str, int]:
        """The bytes of each card that are assigned to no pod, by UUID."""
        view = self._state.view()
        return {
            uuid: (card.memory_mib - assigned_on(view, uuid)[0]) << 20
            for uuid, card in view.cards.items()
        }

    def wake(self) -> None:
        """Look soon: something has changed."""
        self._wake.set()
        self._reporter.wake()

    def run(self, stopping: threading.Event) -> None:
        """Act until ``stopping`` is set; ``wake`` is called then, too."""
        self._tell_devices()
        # The coordinator first: containers that run may need it now.
        self._coordinator.check()
        parts: tuple[_Part, ...] = (self._health, self._observer, self._reporter)
        with ExitStack() as ends:
            # Ended last, right before the next agent's turn: the kubelet fails pods in between.
            ends.callback(self._registration.stop)
            ends.callback(self._coordinator.stop)
            ends.enter_context(self._sweeping())
            for part in parts:
                part.start()
                ends.callback(part.stop)
            self._registration.start()
            while not stopping.is_set():
                self._round()
                self._wake.wait(self._settings.period_s)
                self._wake.clear()

    def _round(self) -> None:
        """One look at everything; what fails is tried again in the next round."""
        steps = (
            *(self._coordinator.check, self._follow_health, self._tell_devices),
            self._report_conflict,
            *(self._remember_cards, self._make_specifications),
            *(self._figures.note_peaks, self._handlers.adopt, partial(release_ended, self._state)),
        )
        for step in steps:
            try:
                step()
            except HamiError as error:
                _log.error("%s", error)
            except Exception:
                _log.exception("acting")

    def _plugin(self) -> Registration:
        paths = self._settings.paths
        installed = library.install(self._settings.library, paths.libraries)
        self._handlers = Preparation(
            self._settings,
            self._state,
            installed if self._state.enforces else None,
            self._holds,
            self._events.write,
        )
        resource = self._settings.pods.profiles[0].gpu
        return Registration(paths.device_plugins, resource, self._devices, self._handlers)

    @contextmanager
    def _sweeping(self) -> Iterator[None]:
        """Reports for whom the driver still holds memory, in a thread of its own."""
        stop = threading.Event()
        sweeper = Sweeper(writer(self._settings.paths.runtime))
        thread = threading.Thread(target=sweeper.run, args=(stop,), name="sweep", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()

    def _follow_health(self) -> None:
        cards = self._state.cards
        before = cards.unhealthy()
        unhealthy = dict(self._health.unhealthy())
        for uuid in self._lost - self._observer.used.keys():
            unhealthy.setdefault(uuid, NOT_LISTED)
        for uuid in self._without_specification():
            unhealthy.setdefault(uuid, self._state.specifications.why_missing())
        cards.set_unhealthy(unhealthy)
        now = cards.unhealthy()
        for uuid in sorted(now.keys() | before.keys()):
            if now.get(uuid) != before.get(uuid):
                self._report_health(uuid, now.get(uuid))
        if now != before:
            self._reporter.wake()

    def _add_known_cards(self) -> set[str]:
        """Add the cards that an earlier agent has seen; those that do not answer now."""
        cards, earlier = self._state.cards, read_cards(self._settings.paths.cards)
        lost = {card.uuid for card in earlier} - {card.uuid for card in cards.all}
        if lost:
            cards.add(Inventory(earlier, {}, "", dict.fromkeys(range(len(lost)), NOT_LISTED)))
        return lost

    def _remember_cards(self) -> None:
        write_cards(self._settings.paths.cards, self._state.cards.all)

    def _without_specification(self) -> list[str]:
        known = [card.uuid for card in self._state.cards.all]
        return self._state.specifications.missing(known)

    def _make_specifications(self) -> None:
        """At the start, because the driver may be another one, and while a card has none."""
        program, now = self._settings.nvidia_ctk, time.monotonic()
        if program is None:
            # An agent with the option may have made one.
            shutil.rmtree(self._settings.paths.made_specifications, ignore_errors=True)
        due = self._made_at == float("-inf") or (
            now - self._made_at > _MAKE_AGAIN_S and self._without_specification()
        )
        if program is not None and due:
            self._made_at = now
            make_specification(program, self._settings.paths.made_specifications)

    def _missing_specifications(self) -> str | None:
        missing = self._without_specification()
        if not missing:
            return None
        return f"{self._state.specifications.why_missing()}: {', '.join(missing)}; {cdi.FIX}"

    def _report_health(self, uuid: str, why: str | None) -> None:
        _log.warning("card %s: %s", uuid, why or "healthy again")
        if why is None:
            message = f"card {uuid} is healthy again"
            event = Event(self._node, "CardHealthy", message, is_warning=False, repeats=True)
        else:
            message = f"card {uuid} gets no new pods: {why}"
            event = Event(self._node, "CardUnhealthy", message, repeats=True)
        self._events.write(event)

    def _report_conflict(self) -> None:
        why = self._registration.conflict
        if why is not None:
            message = f"hami's node agent does not register: {why}; remove it from this node"
            self._events.write(Event(self._node, "OtherDevicePlugin", message))

    def _tell_devices(self) -> None:
        """The kubelet fails pods without a healthy device; without a specification they wait."""
        without = set(self._without_specification())
        self._devices.set(
            {
                id: card.healthy or card.uuid in without
                for card in self._state.cards.all
                for id in device_ids(card.uuid, card.slots)
            }
        )

    def _open(self, known: Known) -> NodeState:
        """The ledger and the slots, as an earlier agent left them."""
        paths = self._settings.paths
        paths.runtime.mkdir(mode=0o755, parents=True, exist_ok=True)
        mounts.mount(paths.runtime)
        namespace = os.stat("/proc/self/ns/pid")  # noqa: PTH116
        return NodeState(
            self._settings.pods,
            cards=known.cards,
            pods=known.pods,
            node=known.node,
            ledger=self._open_ledger(),
            slots=Slots(paths, (namespace.st_dev, namespace.st_ino)),
            paths=paths,
        )

    def _open_ledger(self) -> Ledger:
        """The ledger; a new one if it is damaged. Running containers are adopted into it."""
        path = self._settings.paths.ledger
        try:
            return Ledger(path)
        except DamagedFile as error:
            aside = set_aside(path)
            _log.error("%s; it is kept as %s, and a new one begins", error, aside)
            message = f"the ledger was damaged; it is kept as {aside}, and a new one was begun"
            self._events.write(Event(self._node, "LedgerDamaged", message))
            return Ledger(path)
