"""The node agent as a service: it follows the node, and is active while no other agent is."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from functools import partial

import msgspec
from starlette.routing import Router

from hami_py import config
from hami_py.agent.active import ActiveAgent
from hami_py.agent.node import NodeStore, OwnNode
from hami_py.agent.pods import NodePod, PodStore
from hami_py.agent.settings import AgentSettings
from hami_py.errors import HamiError
from hami_py.gpu.inventory import inventory
from hami_py.gpu.measured_memory import MeasuredMemory
from hami_py.kube import ApiServer, EventWriter, Followed, Reflector
from hami_py.monitor import NodeFigures, encode, exposition, hami_exposition
from hami_py.node.cards import Cards
from hami_py.node.library import install
from hami_py.node.node_lock import node_lock
from hami_py.serving import Server, page

_log = logging.getLogger(__name__)

_END_S = 10.0
"""How long the agent's work may take to end. The kubelet waits longer (deploy/)."""

_RETRY_S = 5.0
"""How long to wait for a driver that does not answer, before it is asked again."""


class Agent:
    """The node agent."""

    def __init__(self, api: ApiServer, settings: AgentSettings) -> None:
        self._api, self._settings = api, settings
        self._stopping = threading.Event()
        self._cards, self._pods, self._node = Cards(), PodStore(self._wake), NodeStore(self._wake)
        self._events = EventWriter(api, "hami-node", settings.node)
        of_node = {"fieldSelector": f"spec.nodeName={settings.node}"}
        named = {"fieldSelector": f"metadata.name={settings.node}"}
        self._reflectors: tuple[Reflector, ...] = (  # type: ignore[type-arg]
            Reflector(Followed(api, "/api/v1/pods", NodePod, self._pods, of_node)),
            Reflector(Followed(api, "/api/v1/nodes", OwnNode, self._node, named)),
        )
        self._thread = threading.Thread(target=self._run, name="node", daemon=True)
        self._why_not = "the driver does not answer; the log has the reason"
        # None = it is not active yet.
        self._active: ActiveAgent | None = None
        pages = [
            page("/healthz", self._alive),
            page("/readyz", self._ready),
            page("/metrics", partial(self._figures, exposition), blocks=True),
            page("/metrics/hami", partial(self._figures, hami_exposition), blocks=True),
            page("/figures", partial(self._figures, encode), "application/json", blocks=True),
            page("/history", self._history, "application/json", blocks=True),
        ]
        self._server = Server(Router(pages), settings.listen)

    def start(self) -> None:
        """Start to follow the node, and to wait until no other agent is active."""
        self._server.start()
        self._events.start()
        for reflector in self._reflectors:
            reflector.start()
        self._thread.start()

    def stop(self) -> None:
        """End. Containers run on with their limits; shares are less exact until the next agent."""
        self._stopping.set()
        self._wake()
        self._thread.join(_END_S)
        for reflector in self._reflectors:
            reflector.stop()
        self._events.stop()
        self._server.stop()

    def _wake(self) -> None:
        if self._active is not None:
            self._active.wake()

    def _alive(self) -> tuple[int, str]:
        """A thread that has ended by a fault is only replaced by a restart."""
        watching = [reflector.thread for reflector in self._reflectors]
        own = [self._thread, self._events.thread, self._server.thread, *watching]
        ended = [t.name for t in own if t.ident is not None and not t.is_alive()]
        if self._active is not None:
            ended += self._active.ended_threads()
        if ended and not self._stopping.is_set():
            return 503, f"ended: {', '.join(ended)}\n"
        return 200, "alive\n"

    def _ready(self) -> tuple[int, str]:
        if not self._thread.is_alive():
            return 503, "the agent ends; the log has the reason\n"
        why = self._active.not_ready if self._active is not None else self._why_not
        if why:
            return 503, f"{why}\n"
        return 200, "ready\n" if self._active else "ready; another agent is active\n"

    def _figures(self, write: Callable[[NodeFigures], bytes]) -> tuple[int, bytes]:
        active = self._active
        return (
            (200, write(active.figures())) if active is not None else (503, b"it is not active\n")
        )

    def _history(self) -> tuple[int, bytes]:
        active = self._active
        if active is None:
            return 503, b"it is not active\n"
        return 200, msgspec.json.encode(active.history())

    def _run(self) -> None:
        try:
            if not self._find_cards():
                return
            # If it cannot be installed, this agent is never ready, and the other one goes on.
            self._why_not = "the library is not installed yet"
            install(self._settings.library, self._settings.paths.libraries)
            self._why_not = ""
            with node_lock(self._settings.paths, self._stopping) as is_locked:
                if is_locked:
                    self._why_not = "the API server has not shown this node yet"
                    self._active = active = ActiveAgent(
                        *(self._api, self._settings, self._events),
                        cards=self._cards,
                        pods=self._pods,
                        node=self._node,
                        restart=_end,
                        stopping=self._stopping,
                    )
                    self._why_not = ""
                    self._measured.start(active.unassigned(), self._cards.set_measured)
                    if not self._stopping.is_set():
                        active.run()
        except HamiError as error:
            _log.error("%s", error)
        except Exception:
            _log.exception("the agent ends")
        finally:
            if not self._stopping.is_set():
                _end()

    def _find_cards(self) -> bool:
        """Wait until the driver answers; False = this agent ends."""
        while not self._stopping.is_set():
            try:
                found = inventory(self._settings.slots)
            except HamiError as error:
                _log.error("%s", error)
                self._stopping.wait(_RETRY_S)
            else:
                self._cards.add(found)
                models = {card.uuid: card.model for card in found.cards}
                self._measured = MeasuredMemory(
                    *(self._settings.paths.state / "driver-memory.json", models, found.driver),
                    config.read().environment,
                )
                self._cards.set_measured(self._measured.results())
                _log.info("driver %s, %d cards", found.driver, len(found.cards))
                return True
        return False


def _end() -> None:
    """End this process as if it was asked to; the kubelet starts it again."""
    os.kill(os.getpid(), signal.SIGTERM)
