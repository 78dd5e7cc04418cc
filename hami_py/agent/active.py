"""The active agent of a node: its parts, and the loop that keeps the node as it should be."""

import logging
import math
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from hami_py.agent.assigned import Assigned
from hami_py.agent.figures import Figures
from hami_py.agent.hook_server import HookServer
from hami_py.agent.instances import Instances
from hami_py.agent.kernel_limits import KernelLimits, why_none
from hami_py.agent.node import NodeStore
from hami_py.agent.others import Others
from hami_py.agent.owner import OwnerLabel, kept_owner
from hami_py.agent.pods import PodStore
from hami_py.agent.preparation import Allocator, Preparation
from hami_py.agent.publication import publish
from hami_py.agent.release import release_ended
from hami_py.agent.reports import Reports
from hami_py.agent.resize import Resizer
from hami_py.agent.settings import AgentSettings
from hami_py.agent.state import NodeState
from hami_py.errors import DamagedFile
from hami_py.gpu.health import NOT_LISTED, Health
from hami_py.gpu.inventory import Inventory
from hami_py.gpu.sweep import Sweeper, writer
from hami_py.kube import ApiServer, Event, EventWriter, Reference
from hami_py.monitor import Histories, History, NodeFigures, readings_of
from hami_py.node import cdi, library, mounts
from hami_py.node.cards import Cards, KnownCards
from hami_py.node.coordinator import Coordinator
from hami_py.node.decision import assigned_on
from hami_py.node.devices import device_ids
from hami_py.node.ledger import Ledger, set_aside
from hami_py.node.nvidia_ctk import make_specification
from hami_py.node.observer import Observer
from hami_py.node.processes import pod_of_process
from hami_py.node.rounds import Rounds
from hami_py.node.slots import Slots
from hami_py.plugin import other_plugin
from hami_py.plugin.devices import DeviceList
from hami_py.plugin.registration import Registration

_log = logging.getLogger(__name__)

_CONTAINERS = 1024
"""Containers with limits on a node of others; more than a kubelet runs."""

_MAKE_AGAIN_S = 60.0
"""How often a CDI specification is made while a card has none."""


class ActiveAgent:
    """The parts of an agent that has the node's lock.

    Args:
        api: the API server.
        settings: how the agent runs.
        events: writes events.
        cards: the node's cards.
        pods: the node's pods, followed.
        node: the node's own object, followed.
        restart: ends the agent's process; the kubelet starts it again.
        stopping: is set when the agent ends; ``wake`` is called then, too.

    Raises:
        StateError: the node's files cannot be used.
    """

    def __init__(
        self,
        api: ApiServer,
        settings: AgentSettings,
        events: EventWriter,
        *,
        cards: Cards,
        pods: PodStore,
        node: NodeStore,
        restart: Callable[[], None],
        stopping: threading.Event,
    ) -> None:
        self._settings, self._events = settings, events
        self._node = Reference("Node", settings.node, settings.node)
        installed = library.install(settings.library, settings.paths.libraries)
        self._stopping = stopping
        self._state = self._open(cards, pods, node, library.hook_file(installed))
        owner = self._state.owner
        self._answered = {card.uuid for card in cards.all} | cards.in_mig_mode
        self._known = KnownCards(settings.paths.cards)
        self._add_known_cards()
        self._made_at = -math.inf
        self._devices = DeviceList()
        self._health = Health(self.wake, managed=lambda: cards.managed)
        self._observer = Observer(
            *(cards, self._state.ledger, self._state.slots, pod_of_process),
            changed=self.wake,
            containers=settings.slots,
        )
        reports = Reports(
            *(self._state, self._observer, events.write, self._node), killed=settings.killed
        )
        instances = Instances(self._state, self.wake, events.write, self._node)
        allocator: Allocator = (
            Assigned(settings, self._state, events.write, instances)
            if owner == "hami"
            else Others(api, settings, self._state)
        )
        self._handlers = Preparation(
            *(settings, self._state, installed, events.write, instances), allocator=allocator
        )
        self._registration = Registration(
            *(settings.paths.device_plugins, allocator.resource, self._devices, self._handlers),
            rival=other_plugin.listening if owner == "hami" else lambda _: None,
        )
        label = OwnerLabel(self._state, settings.paths, events.write, self._node, restart)
        self._figures = Figures(settings.node, self._state, self._observer)
        self._histories = Histories()
        self._coordinator = Coordinator(settings.paths.runtime)
        resizer = Resizer(api, settings.pods, self._state, events.write)
        published = partial(publish, api, self._state, settings.pods.profiles[0])
        # In a thread of their own, because the API server may be away for minutes.
        publishing = (published, resizer.follow, resizer.publish)
        self._reporting = Rounds("report", publishing, settings.period_s)
        self._state.no_kernel = why_none(settings.pods.kernel_limits)
        limits = KernelLimits(self._state, events.write)
        self._hooks: HookServer | None = None
        if self._state.no_kernel is None:
            self._hooks = HookServer(settings.paths.hook_socket, limits.start)
        # With the looks at the processes, because NVML may hang.
        looking = (self._observer.observe, reports.report, limits.follow)
        self._observing = Rounds("observe", looking, settings.period_s)
        self._following = Rounds("instances", (instances.follow,), settings.period_s)
        steps = (
            *(self._coordinator.check, self._state.follow_mode, label.follow),
            *(self._follow_health, self._tell_devices),
            *(self._report_conflict, self._report_mode),
            *(lambda: self._known.remember(self._state.cards.all), self._make_specifications),
            *(self._figures.note_use, self._handlers.adopt, partial(release_ended, self._state)),
            *(self._state.ledger.sync, self._keep_history),
        )
        self._rounds = Rounds("work", steps, settings.period_s, stopping)
        sweeper, self._end_sweeps = Sweeper(writer(settings.paths.runtime)), threading.Event()
        self._sweeping = threading.Thread(
            target=sweeper.run, args=(self._end_sweeps,), name="sweep", daemon=True
        )

    def ended_threads(self) -> list[str]:
        """The names of threads that have ended by a fault; only a restart can replace them."""
        # The last one that is started.
        register = self._registration.thread
        if register.ident is None:
            return []
        threads = [*self._health.threads, self._sweeping, register]
        threads += [] if self._hooks is None else [self._hooks.thread]
        rounds = {
            **{"observe": self._observing, "report": self._reporting},
            "instances": self._following,
        }
        return [
            *(thread.name for thread in threads if not thread.is_alive()),
            *(name for name, each in rounds.items() if not each.is_running),
        ]

    @property
    def not_ready(self) -> str | None:
        """Why containers cannot be allocated the node's cards; None = they can."""
        if self._registration.conflict is not None:
            return f"not registered: {self._registration.conflict}"
        if not self._registration.is_registered:
            return "not registered: the log has the reason"
        missing = self._without_specification()
        if missing:
            return f"{self._state.specifications.why_missing()}: {', '.join(missing)}; {cdi.FIX}"
        return None

    def figures(self) -> NodeFigures:
        """The node's figures now."""
        return self._figures.collect(
            registered=self._registration.is_registered, waiting=self._handlers.waiting
        )

    def history(self) -> History:
        """The node's last hour."""
        return self._histories.history(time.monotonic())

    def _keep_history(self) -> None:
        if self._histories.is_due(now := time.monotonic()):
            self._histories.take(readings_of(self.figures()), now)

    def unassigned(self) -> dict[str, int]:
        """The bytes of each card that are assigned to no pod, by UUID."""
        view = self._state.view()
        return {
            uuid: (card.memory_mib - assigned_on(view, uuid)[0]) << 20
            for uuid, card in view.cards.items()
        }

    def wake(self) -> None:
        """Look soon: something has changed."""
        self._rounds.wake()
        self._reporting.wake()
        self._following.wake()

    def run(self) -> None:
        """Work until ``stopping`` is set."""
        self._state.follow_mode()
        self._tell_devices()
        # The coordinator first: containers that run may need it now.
        self._coordinator.check()
        with ExitStack() as ends:
            # Ended last, right before the next agent is active: the kubelet fails pods in between.
            ends.callback(self._registration.stop)
            ends.callback(self._coordinator.stop)
            ends.callback(self._end_sweeps.set)
            self._sweeping.start()
            for part in (self._health, self._observing, self._following, self._reporting):
                part.start()
                ends.callback(part.stop)
            if self._hooks is not None:
                self._hooks.thread.start()
                ends.callback(self._hooks.stop)
            self._registration.start()
            self._rounds.run()

    def _follow_health(self) -> None:
        cards = self._state.cards
        before = cards.unhealthy()
        unhealthy = dict(self._health.unhealthy())
        # Those that have not answered at the start may be unknown to ``Health``.
        late = {card.uuid for card in cards.all} - self._answered
        for uuid in late - self._observer.used.keys():
            unhealthy.setdefault(uuid, NOT_LISTED)
        for uuid in self._without_specification():
            unhealthy.setdefault(uuid, f"{self._state.specifications.why_missing()}; {cdi.FIX}")
        cards.set_unhealthy(unhealthy)
        now = cards.unhealthy()
        for uuid in sorted(now.keys() | before.keys()):
            if now.get(uuid) != before.get(uuid):
                self._report_health(uuid, now.get(uuid))
        if now != before:
            self._reporting.wake()

    def _add_known_cards(self) -> None:
        """Add the cards that an earlier agent has seen, and that do not answer now."""
        known, cards = self._known.read(), self._state.cards
        cards.managed = cards.in_mig_mode & {card.uuid for card in known if card.mig is not None}
        lost = [replace(each, mig=None) for each in known if each.uuid not in self._answered]
        if lost:
            left_out = dict.fromkeys(range(len(lost)), NOT_LISTED)
            cards.add(Inventory(tuple(lost), {}, "", left_out))

    def _without_specification(self) -> list[str]:
        if self._state.owner != "hami":
            # Others define the devices.
            return []
        # Containers get no GPU on which instances are made.
        known = [card.uuid for card in self._state.cards.all if card.mig is None]
        return self._state.specifications.missing(known)

    def _lacks_specification(self) -> bool:
        """Whether one has to be made; instances need one that has any card."""
        has_some = not self._state.cards.managed or self._state.specifications.devices()
        return bool(self._without_specification() or not has_some)

    def _make_specifications(self) -> None:
        """At the start, because the driver may be another one, and while a card has none."""
        program, now = self._settings.nvidia_ctk, time.monotonic()
        program = program if self._state.owner == "hami" else None
        made, is_first = self._settings.paths.made_specifications, math.isinf(self._made_at)
        if program is None:
            # An agent with the option may have made one.
            shutil.rmtree(made, ignore_errors=True)
        elif now - self._made_at > _MAKE_AGAIN_S and (is_first or self._lacks_specification()):
            self._made_at = now
            make_specification(program, made, self._settings.driver_root)

    def _report_health(self, uuid: str, why: str | None) -> None:
        _log.warning("card %s: %s", uuid, why or "healthy again")
        if why is None:
            text = f"card {uuid} is healthy again"
            event = Event(self._node, "CardHealthy", text, is_warning=False, repeats=True)
        else:
            text = f"card {uuid} gets no new pods: {why}"
            event = Event(self._node, "CardUnhealthy", text, repeats=True)
        self._events.write(event)

    def _report_conflict(self) -> None:
        why = self._registration.conflict
        if why is not None:
            message = f"hami-py's node agent does not register: {why}; remove it from this node"
            self._events.write(Event(self._node, "OtherDevicePlugin", message))

    def _report_mode(self) -> None:
        """Running containers keep the limits of the mode that they were started in."""
        mode = self._state.mode()
        others = {entry.mode for entry in self._state.ledger.entries.values()} - {mode}
        if others and self._state.node.node is not None:
            before = ", ".join(sorted(others))
            text = (
                f"new pods get limits as on nodes of mode {mode}; running ones keep {before}, and "
                "GPUs with MIG instances of running pods stay as they are"
            )
            self._events.write(Event(self._node, "ModeChanged", text))

    def _tell_devices(self) -> None:
        """The kubelet fails pods without a healthy device; without a specification they wait."""
        if self._state.owner != "hami":
            self._devices.set(dict.fromkeys(device_ids("limits", _CONTAINERS), True))
            return
        without = set(self._without_specification())
        self._devices.set(
            {
                id: card.healthy or card.uuid in without
                for card in self._state.cards.all
                for id in device_ids(card.uuid, card.slots)
            }
        )

    def _open(self, cards: Cards, pods: PodStore, node: NodeStore, hook: Path) -> NodeState:
        """The ledger and the slots, as an earlier agent left them."""
        paths = self._settings.paths
        ledger = self._open_ledger()
        owner = kept_owner(paths, ledger, node, self._stopping)
        paths.runtime.mkdir(mode=0o755, parents=True, exist_ok=True)
        mounts.mount(paths.runtime)
        return NodeState(
            self._settings.pods,
            cards=cards,
            pods=pods,
            node=node,
            ledger=ledger,
            slots=Slots(paths),
            paths=paths,
            hook=hook,
            owner=owner,
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
