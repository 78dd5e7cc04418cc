"""Serving the device plugin, and registering it at the kubelet again whenever that is necessary.

A kubelet that restarts removes the sockets of all plugins. When the stream of a plugin with the
same resource ends, also of an older agent's, the kubelet forgets the new one too. And a
registration may succeed although the kubelet never watches the devices. Only an open ListAndWatch
means "registered". While there is none, pods that the kubelet admits fail for good, so the loop
looks often and does not back off for long.

This plugin does not register beside another one for the same resource (``other_plugin``).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent import futures
from contextlib import suppress
from pathlib import Path

import grpc

from hami_py.plugin import other_plugin
from hami_py.plugin.api import deviceplugin_pb2 as api
from hami_py.plugin.api import deviceplugin_pb2_grpc as services
from hami_py.plugin.devices import DeviceList
from hami_py.plugin.service import OPTIONS, DevicePlugin, Handlers

_log = logging.getLogger(__name__)

_VERSION = "v1beta1"

_CONFLICT_S = 1.0
"""How often to look for another device plugin."""

_POLL_S = 0.05
"""A restarted kubelet opens its socket a fraction of a second before it admits pods."""

_REGISTER_S = 5.0
"""How long the kubelet may take to answer."""

_WATCH_S = 1.0
"""How long it may take then to begin to watch. Pods that it admits meanwhile fail."""

_RETRY_S = (0.05, 1.0)
"""The first pause after a failure, which doubles each time, and the longest pause."""

_WORKERS = 64
"""Threads for calls. A container that waits for its pod's assignment keeps one for seconds."""

_END_S = 2.0
"""How long calls in progress may take when the plugin ends."""


class Registration:
    """Keeps a device plugin registered, in a thread of its own.

    Args:
        folder: the kubelet's folder of plugins.
        resource: the extended resource.
        devices: its devices.
        handlers: make the decisions.
        rival: the socket in the folder of another plugin for the resource; None = there is none.
    """

    def __init__(
        self,
        folder: Path,
        resource: str,
        devices: DeviceList,
        handlers: Handlers,
        rival: Callable[[Path], Path | None] = other_plugin.listening,
    ) -> None:
        self._folder = folder
        self._resource = resource
        # Two agents run side by side during an upgrade.
        self._name = f"hami-{os.getpid()}-{time.monotonic_ns()}.sock"
        self._socket, self._kubelet = folder / self._name, folder / "kubelet.sock"
        self._devices, self._rival = devices, rival
        self._stopping = threading.Event()
        self._plugin = DevicePlugin(devices, handlers, self._set_watched, self._stopping.is_set)
        self._server: grpc.Server | None = None
        self._streams = self._begun = 0
        self._conflict: str | None = None
        self._look_at = 0.0
        self._changed = threading.Condition()
        self.thread = threading.Thread(target=self._run, name="register", daemon=True)

    @property
    def conflict(self) -> str | None:
        """Why this plugin must not register; None = it may."""
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _CONFLICT_S
            socket = self._rival(self._folder)
            why = f"another device plugin (NVIDIA's or HAMi's) listens on {socket}"
            self._conflict = why if socket is not None else None
        return self._conflict

    @property
    def is_registered(self) -> bool:
        """Whether the kubelet watches the devices."""
        return self._streams > 0

    def start(self) -> None:
        """Start to serve and to register."""
        for left in self._folder.glob("hami-*.sock"):
            # Of an agent that was killed.
            if not other_plugin.accepts(left):
                left.unlink(missing_ok=True)
        self.thread.start()

    def stop(self) -> None:
        """End the service. Running containers are not affected."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        # The stream waits for a change.
        self._devices.wake()
        if self.thread.is_alive():
            self.thread.join(2 * _END_S)
        self._end_server()

    def _set_watched(self, watched: bool) -> None:
        with self._changed:
            self._streams += 1 if watched else -1
            self._begun += watched
            self._changed.notify_all()

    def _run(self) -> None:
        pause = _RETRY_S[0]
        while not self._stopping.is_set():
            if self.conflict is not None:
                self._end_server()
                self._stopping.wait(_CONFLICT_S)
            elif self.is_registered and self._socket.exists():
                pause = _RETRY_S[0]
                with self._changed:
                    self._changed.wait_for(
                        lambda: not self.is_registered or self._stopping.is_set(), _CONFLICT_S
                    )
            elif not self._kubelet.exists():
                self._stopping.wait(_POLL_S)
            else:
                kubelet = self._kubelet_socket()
                try:
                    self._register()
                except Exception as error:
                    why = error.details() if isinstance(error, grpc.Call) else error
                    _log.warning("not registered at the kubelet: %s", why)
                    has_restarted = self._wait_for_restart(kubelet, pause)
                    pause = _RETRY_S[0] if has_restarted else min(2 * pause, _RETRY_S[1])

    def _kubelet_socket(self) -> tuple[int, int] | None:
        """Differs when the kubelet has opened its socket again; one that was killed leaves it."""
        with suppress(OSError):
            found = self._kubelet.stat()
            return found.st_ino, found.st_ctime_ns
        return None

    def _wait_for_restart(self, before: tuple[int, int] | None, pause: float) -> bool:
        """Wait until the kubelet has another socket, but not for longer than this."""
        end = time.monotonic() + pause
        while not self._stopping.is_set() and (left := end - time.monotonic()) > 0:
            if self._kubelet_socket() != before:
                return True
            self._stopping.wait(min(left, _POLL_S))
        return False

    def _register(self) -> None:
        """Register, and wait until the kubelet watches the devices."""
        if self._server is None or not self._socket.exists():
            self._serve()
        request = api.RegisterRequest(
            version=_VERSION, endpoint=self._name, resource_name=self._resource, options=OPTIONS
        )
        begun = self._begun
        # A new channel each time: one to a kubelet that has restarted would wait before it retries.
        with grpc.insecure_channel(f"unix://{self._kubelet}") as channel:
            stub = services.RegistrationStub(channel)  # type: ignore[no-untyped-call]
            stub.Register(request, timeout=_REGISTER_S)
        with self._changed:
            # The stream may have ended already; then the loop registers again at once.
            done = self._changed.wait_for(
                lambda: self._begun > begun or self._stopping.is_set(), _WATCH_S
            )
        if not done:
            raise TimeoutError(f"it does not watch the devices after {_WATCH_S:g} s")
        _log.info("registered %s at the kubelet", self._resource)

    def _serve(self) -> None:
        self._end_server()
        workers = futures.ThreadPoolExecutor(_WORKERS, thread_name_prefix="plugin")
        server = grpc.server(workers)
        add = services.add_DevicePluginServicer_to_server
        add(self._plugin, server)  # type: ignore[no-untyped-call]
        server.add_insecure_port(f"unix://{self._socket}")
        server.start()
        self._server = server

    def _end_server(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.stop(_END_S if self._stopping.is_set() else 0).wait(2 * _END_S)
        with suppress(FileNotFoundError):
            self._socket.unlink()
