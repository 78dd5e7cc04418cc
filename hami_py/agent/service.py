"""The node agent as a whole: its threads, and the order in which they start."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from contextlib import suppress

from starlette.routing import Router

from hami_py.agent.coordinator import Coordinator
from hami_py.agent.holds import Holds
from hami_py.agent.node import NodeStore, OwnNode
from hami_py.agent.observer import Observer
from hami_py.agent.pods import NodePod, PodStore
from hami_py.agent.preparation import Preparation
from hami_py.agent.release import release_ended
from hami_py.agent.reporter import Reporter
from hami_py.agent.settings import AgentSettings
from hami_py.agent.state import Cards, NodeState
from hami_py.errors import DamagedFile, HamiError
from hami_py.gpu.health import Health
from hami_py.gpu.inventory import inventory
from hami_py.gpu.sweep import Sweeper
from hami_py.kube import ApiServer, Event, EventWriter, Followed, Reference, Reflector
from hami_py.node import library, mounts
from hami_py.node.devices import device_ids
from hami_py.node.ledger import Ledger, set_aside
from hami_py.node.slots import Slots
from hami_py.plugin.allocation import Answers
from hami_py.plugin.devices import DeviceList
from hami_py.plugin.registration import Registration
from hami_py.serving import Server, page

__all__ = ["Agent"]

_log = logging.getLogger(__name__)

_END_S = 10.0
"""How long the agent's work may take to end. The kubelet waits longer (deploy/)."""

_RETRY_S = 5.0
"""How long to wait for a driver that does not answer, before it is asked again."""


class Agent:
    """The node agent.

    Args:
        api: the API server.
        settings: how the agent runs.
    """

    def __init__(self, api: ApiServer, settings: AgentSettings) -> None:
        self._api, self._settings = api, settings
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._cards, self._devices = Cards(), DeviceList()
        self._pods, self._node = PodStore(self._wake_all), NodeStore(self._wake_all)
        self._holds = Holds()
        self._events = EventWriter(api, "hami-node", settings.node)
        of_node = {"fieldSelector": f"spec.nodeName={settings.node}"}
        named = {"fieldSelector": f"metadata.name={settings.node}"}
        self._reflectors: tuple[Reflector, ...] = (  # type: ignore[type-arg]
            Reflector(Followed(api, "/api/v1/pods", NodePod, self._pods, of_node)),
            Reflector(Followed(api, "/api/v1/nodes", OwnNode, self._node, named)),
        )
        self._thread = threading.Thread(target=self._run, name="node", daemon=True)
        # Set when this agent acts.
        self._reporter: Reporter | None = None
        self._registration: Registration | None = None
        pages = [page("/healthz", self._alive), page("/readyz", self._ready)]
        self._server = Server(Router(pages), settings.listen)

    def start(self) -> None:
        """Start all threads."""
        self._server.start()
        self._events.start()
        for reflector in self._reflectors:
            reflector.start()
        self._thread.start()

    def stop(self) -> None:
        """End. Containers run on with their limits; shares are less exact until the next agent."""
        self._stopping.set()
        self._wake.set()
        self._thread.join(_END_S)
        for reflector in self._reflectors:
            reflector.stop()
        self._events.stop()
        self._server.stop()

    def _wake_all(self) -> None:
        self._wake.set()
        if self._reporter is not None:
            self._reporter.wake()

    def _alive(self) -> tuple[int, str]:
        """A thread that has ended by a fault is only replaced by a restart."""
        reporter = self._reporter
        ended = not self._thread.is_alive() or (reporter is not None and not reporter.is_running)
        if ended and not self._stopping.is_set():
            return 500, "a thread has ended; the log has the reason\n"
        return 200, "alive\n"

    def _ready(self) -> tuple[int, str]:
        registration = self._registration
        if registration is None:
            return 503, "another agent acts, or the driver does not answer; the log has more\n"
        if registration.conflict is not None:
            return 503, f"not registered: {registration.conflict}\n"
        if not registration.is_registered:
            return 503, "not registered at the kubelet; the log has the reason\n"
        return 200, "ready\n"

    def _run(self) -> None:
        """Wait for the turn of this agent, and act until it is stopped."""
        paths = self._settings.paths
        try:
            paths.state.mkdir(mode=0o755, parents=True, exist_ok=True)
            with paths.agent_lock.open("a") as lock:
                if self._wait_for_lock(lock.fileno()) and self._find_cards():
                    self._act()
        except HamiError as error:
            _log.error("%s", error)
        except Exception:
            _log.exception("the agent ends")

    def _act(self) -> None:
        """Prepare the node, and keep it as it should be."""
        state = self._open()
        installed = library.install(self._settings.library, self._settings.paths.libraries)
        answers = Answers(self._settings.paths, installed, self._settings.strategy)
        handlers = Preparation(self._settings, state, answers, self._holds)
        folder, resource = self._settings.paths.device_plugins, self._settings.pods.profiles[0].gpu
        self._tell_devices()
        registration = Registration(folder, resource, self._devices, handlers)
        reporter = Reporter(self._api, self._settings, state, self._holds, self._events)
        sweeper = threading.Thread(
            target=Sweeper(self._settings.paths.runtime).run,
            args=(self._stopping,),
            name="sweep",
            daemon=True,
        )
        coordinator = Coordinator(self._settings.paths.runtime)
        coordinator.check()
        health = Health(self._wake_all)
        health.start()
        observer = Observer(
            *(
                state,
                self._events.write,
                Reference("Node", self._settings.node, self._settings.node),
            ),
            *(reporter.wake, self._settings.period_s),
        )
        observer.start()
        sweeper.start()
        reporter.start()
        registration.start()
        self._reporter, self._registration = reporter, registration
        try:
            while not self._stopping.is_set():
                coordinator.check()
                self._follow_health(health)
                self._report_conflict(registration.conflict)
                try:
                    release_ended(state)
                except HamiError as error:
                    _log.error("%s", error)
                self._wake.wait(self._settings.period_s)
                self._wake.clear()
        finally:
            registration.stop()
            health.stop()
            observer.stop()
            reporter.stop()
            coordinator.stop()

    def _open(self) -> NodeState:
        """The ledger and the slots, as an earlier agent left them."""
        paths = self._settings.paths
        paths.runtime.mkdir(mode=0o755, parents=True, exist_ok=True)
        mounts.mount(paths.runtime)
        namespace = os.stat("/proc/self/ns/pid")  # noqa: PTH116
        return NodeState(
            self._settings.pods,
            cards=self._cards,
            pods=self._pods,
            node=self._node,
            ledger=self._open_ledger(),
            slots=Slots(paths, (namespace.st_dev, namespace.st_ino)),
        )

    def _wait_for_lock(self, lock: int) -> bool:
        """Wait until no other agent acts; False = this one ends."""
        has_told = False
        while not self._stopping.is_set():
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            if not has_told:
                _log.info("another agent acts on this node; this one waits for its end")
                has_told = True
            time.sleep(0.05)
        return False

    def _find_cards(self) -> bool:
        """Wait until the driver answers; False = this agent ends."""
        while not self._stopping.is_set():
            try:
                found = inventory(self._settings.slots)
            except HamiError as error:
                _log.error("%s", error)
                self._stopping.wait(_RETRY_S)
            else:
                self._cards.set(found.cards, found.context_memory)
                _log.info("driver %s, %d cards", found.driver, len(found.cards))
                return True
        return False

    def _open_ledger(self) -> Ledger:
        path = self._settings.paths.ledger
        try:
            return Ledger(path)
        except DamagedFile as error:
            _log.error("%s; it is kept as %s, and a new one begins", error, set_aside(path))
            return Ledger(path)

    def _report_conflict(self, why: str | None) -> None:
        if why is not None:
            name = self._settings.node
            message = f"hami's node agent does not register: {why}; remove it from this node"
            self._events.write(Event(Reference("Node", name, name), "OtherDevicePlugin", message))

    def _follow_health(self, health: Health) -> None:
        before = self._cards.unhealthy()
        self._cards.set_unhealthy(health.unhealthy())
        now = self._cards.unhealthy()
        if now == before:
            return
        for uuid in sorted(now.keys() | before.keys()):
            if now.get(uuid) != before.get(uuid):
                _log.warning("card %s: %s", uuid, now.get(uuid, "healthy again"))
                self._report_health(uuid, now.get(uuid))
        self._tell_devices()
        self._wake_all()

    def _report_health(self, uuid: str, why: str | None) -> None:
        name = self._settings.node
        about = Reference("Node", name, name)
        if why is None:
            message = f"card {uuid} is healthy again"
            self._events.write(Event(about, "CardHealthy", message, is_warning=False, repeats=True))
        else:
            message = f"card {uuid} gets no new pods: {why}"
            self._events.write(Event(about, "CardUnhealthy", message, repeats=True))

    def _tell_devices(self) -> None:
        self._devices.set(
            {
                id: card.healthy
                for card in self._cards.all
                for id in device_ids(card.uuid, card.slots)
            }
        )
