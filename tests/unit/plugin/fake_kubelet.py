"""A kubelet as plugins see it: it opens a socket, and calls each plugin that registers there.

tests/cluster/findings.md ("Kubelet") describes a real one. At its start, the kubelet removes all
sockets. It asks a new plugin for its options, and then watches its devices. It knows plugins by
their resource, so the end of an old one's stream also ends that of the new one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent import futures
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc

from hami_py.plugin.api import deviceplugin_pb2 as api
from hami_py.plugin.api import deviceplugin_pb2_grpc as services

DEADLINE = 30.0


class FakeKubelet(services.RegistrationServicer):
    """One kubelet; used in `with`.

    Args:
        folder: its folder of device plugins.

    Attributes:
        registered: all requests.
        devices: by ID, the health that the plugin has reported last; None = no stream is open.
        reports: all that plugins have reported.
        refusals: how many more registrations fail.
        ignored: how many more registrations succeed without a ListAndWatch.
        closed: how many more registrations succeed, with a ListAndWatch that is closed before.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.registered: list[api.RegisterRequest] = []
        self.devices: dict[str, str] | None = None
        self.reports: list[dict[str, str]] = []
        self.options: list[api.DevicePluginOptions] = []
        self.refusals = self.ignored = self.closed = 0
        self._changed = threading.Condition()
        self._server: grpc.Server | None = None
        self._streams: dict[int, tuple[grpc.Channel, Any]] = {}
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> FakeKubelet:
        return self.start()

    def __exit__(self, *unused: object) -> None:
        self.kill()

    def start(self) -> FakeKubelet:
        """Remove all sockets, and listen."""
        for path in self._folder.iterdir():
            if path.is_socket():
                path.unlink()
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        services.add_RegistrationServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self._server.add_insecure_port(f"unix://{self._folder / 'kubelet.sock'}")
        self._server.start()
        return self

    def kill(self, *, leave_socket: bool = False) -> None:
        """End at once; a kubelet that is killed leaves its socket."""
        socket = self._folder / "kubelet.sock"
        kept = self._folder / "kept"
        if leave_socket and self._server is not None:
            # gRPC removes the socket that it finds.
            kept.hardlink_to(socket)
        if self._server is not None:
            self._server.stop(grace=None).wait(DEADLINE)
            self._server = None
        self.end_streams()
        for thread in [*self._threads]:
            thread.join(DEADLINE)
        if kept.exists():
            kept.replace(socket)

    def end_streams(self) -> None:
        """Disconnect all plugins."""
        with self._changed:
            streams, self._streams = self._streams, {}
            self.devices = None
            self._changed.notify_all()
        for channel, stream in streams.values():
            stream.cancel()
            channel.close()

    def wait(self, condition: Callable[[FakeKubelet], object], what: str) -> None:
        """Wait until this is true."""
        with self._changed:
            done = self._changed.wait_for(lambda: condition(self), DEADLINE)
        assert done, f"{what}: {len(self.registered)} registrations, devices {self.devices}"

    def Register(self, request: api.RegisterRequest, context: grpc.ServicerContext) -> api.Empty:
        with self._changed:
            self.registered.append(request)
            refuse, self.refusals = self.refusals > 0, max(0, self.refusals - 1)
            ignore = not refuse and self.ignored > 0
            self.ignored -= ignore
            self._changed.notify_all()
        if refuse:
            context.abort(grpc.StatusCode.UNKNOWN, "grpc: the client connection is closing")
        if not ignore:
            channel = grpc.insecure_channel(f"unix://{self._folder / request.endpoint}")
            stub = services.DevicePluginStub(channel)  # type: ignore[no-untyped-call]
            self.options.append(
                stub.GetDevicePluginOptions(api.Empty(), timeout=DEADLINE, wait_for_ready=True)
            )
            if self.closed:
                self.closed -= 1
                stream = stub.ListAndWatch(api.Empty())
                next(stream)
                stream.cancel()
                channel.close()
                return api.Empty()
            number = len(self.options)
            with self._changed:
                self._streams[number] = channel, stub.ListAndWatch(api.Empty())
            thread = threading.Thread(target=self._watch, args=(number,))
            self._threads.append(thread)
            thread.start()
        return api.Empty()

    def _watch(self, number: int) -> None:
        with self._changed:
            channel, stream = self._streams.get(number, (None, ()))
        with suppress(grpc.RpcError):
            for report in stream:
                with self._changed:
                    if number in self._streams:
                        self.devices = {each.ID: each.health for each in report.devices}
                        self.reports.append(self.devices)
                        self._changed.notify_all()
        with self._changed:
            is_by_plugin = self._streams.pop(number, None) is not None
        if is_by_plugin and channel is not None:
            channel.close()
            # The others have the same resource.
            self.end_streams()

    def plugin(self) -> tuple[grpc.Channel, Any]:
        """A connection to the plugin that registered last, for calls of one container."""
        channel = grpc.insecure_channel(f"unix://{self._folder / self.registered[-1].endpoint}")
        return channel, services.DevicePluginStub(channel)  # type: ignore[no-untyped-call]
