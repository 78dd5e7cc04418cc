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
from hami_py.agent.node import NodeStore, OwnNode
from hami_py.agent.pods import NodePod, PodStore
from hami_py.agent.preparation import Preparation
from hami_py.agent.publication import publish, resources
from hami_py.agent.release import release_ended
from hami_py.agent.settings import AgentSettings
from hami_py.agent.state import Cards, NodeState
from hami_py.errors import DamagedFile, HamiError
from hami_py.gpu.inventory import inventory
from hami_py.gpu.sweep import Sweeper
from hami_py.kube import ApiServer, Followed, Reflector
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
        paths, self._profile = settings.paths, settings.pods.profiles[0]
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._cards = Cards()
        self._pods = PodStore(self._wake.set)
        self._node = NodeStore(self._wake.set)
        self._devices = DeviceList()
        field = f"spec.nodeName={settings.node}"
        self._reflectors: tuple[Reflector, ...] = (  # type: ignore[type-arg]
            Reflector(Followed(api, "/api/v1/pods", NodePod, self._pods, {"fieldSelector": field})),
            Reflector(
                Followed(
                    *(api, "/api/v1/nodes", OwnNode, self._node),
                    {"fieldSelector": f"metadata.name={settings.node}"},
                )
            ),
        )
        self._coordinator = Coordinator(paths.runtime)
        self._sweeper = threading.Thread(
            target=Sweeper(paths.runtime).run, args=(self._stopping,), name="sweep", daemon=True
        )
        self._thread = threading.Thread(target=self._run, name="node", daemon=True)
        self._registration: Registration | None = None
        self._server = Server(
            Router(
                [
                    page("/healthz", lambda: (200, "alive\n")),
                    page("/readyz", self._ready),
                ]
            ),
            settings.listen,
        )

    def start(self) -> None:
        """Start all threads."""
        self._server.start()
        for reflector in self._reflectors:
            reflector.start()
        self._thread.start()

    def stop(self) -> None:
        """End. Containers run on with their limits; shares are less exact until the next agent."""
        self._stopping.set()
        self._wake.set()
        if self._registration is not None:
            self._registration.stop()
        self._thread.join(10.0)
        for reflector in self._reflectors:
            reflector.stop()
        self._server.stop()

    def _ready(self) -> tuple[int, str]:
        registration = self._registration
        if registration is None:
            return 503, "another agent acts, or the driver does not answer; the log has more\n"
        if not registration.is_registered:
            return 503, "not registered at the kubelet; the log has the reason\n"
        return 200, "ready\n"

    def _run(self) -> None:
        """Wait for the turn of this agent, prepare the node, and keep it as it should be."""
        paths = self._settings.paths
        paths.state.mkdir(mode=0o755, parents=True, exist_ok=True)
        with paths.agent_lock.open("a") as lock:
            if not self._wait_for_lock(lock.fileno()) or not self._find_cards():
                return
            paths.runtime.mkdir(mode=0o755, parents=True, exist_ok=True)
            mounts.mount(paths.runtime)
            ledger = self._open_ledger()
            namespace = os.stat("/proc/self/ns/pid")  # noqa: PTH116
            slots = Slots(paths, (namespace.st_dev, namespace.st_ino))
            installed = library.install(self._settings.library, paths.libraries)
            answers = Answers(paths, installed, self._settings.strategy)
            state = NodeState(
                self._settings.pods,
                cards=self._cards,
                pods=self._pods,
                node=self._node,
                ledger=ledger,
                slots=slots,
            )
            preparation = Preparation(self._settings, state, answers)
            self._tell_devices()
            self._registration = Registration(
                paths.device_plugins, self._profile.gpu, self._devices, preparation
            )
            self._sweeper.start()
            self._registration.start()
            try:
                while not self._stopping.is_set():
                    self._round(state)
                    self._wake.wait(self._settings.period_s)
                    self._wake.clear()
            finally:
                self._coordinator.stop()

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

    def _tell_devices(self) -> None:
        self._devices.set(
            {
                id: card.healthy
                for card in self._cards.all
                for id in device_ids(card.uuid, card.slots)
            }
        )

    def _round(self, state: NodeState) -> None:
        """One look at everything; a failure of one part is tried again in the next round."""
        self._coordinator.check()
        try:
            release_ended(state)
        except HamiError as error:
            _log.error("%s", error)
        node = self._node.node
        if node is None or not self._pods.is_listed:
            return
        amounts = resources(self._cards.all, self._pods.all(), self._profile)
        try:
            publish(self._api, node, self._cards.all, amounts)
        except HamiError as error:
            _log.warning("%s", error)
