"""A device plugin for findings: it says yes, and writes down what the kubelet asked, in order.

Not ours: it knows neither cards nor limits. The interface is the kubelet's own, of the locked
version (deviceplugin v1beta1, podresources v1).
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

VERSION = "v1beta1"


@dataclass(frozen=True)
class Interfaces:
    """Generated modules: messages and services of both interfaces."""

    plugin: Any
    plugin_services: Any
    resources: Any
    resources_services: Any


def interfaces() -> Interfaces:
    """The modules of hami_py.plugin.api: a process can load only one copy of an interface.

    They are generated from the kubelet's own interface, and test_interfaces.py compares them with
    it. So nothing is compiled here.
    """
    from hami_py.plugin.api import (
        deviceplugin_pb2,
        deviceplugin_pb2_grpc,
        podresources_pb2,
        podresources_pb2_grpc,
    )

    return Interfaces(
        deviceplugin_pb2, deviceplugin_pb2_grpc, podresources_pb2, podresources_pb2_grpc
    )


@dataclass(frozen=True)
class Call:
    """One call of the kubelet's: the method and the device IDs in it."""

    method: str
    ids: tuple[str, ...]
    at: float


#: Runs inside a call, before the response; its result is the response, if it is not None.
Hook = Callable[[Any, Any], Any]


class Plugin:
    """Registers one resource at a kubelet; used in `with`.

    ``hooks`` are by method name (``Allocate``, ``GetPreferredAllocation``, ``PreStartContainer``)
    and get the request and the gRPC context. Without ``asks`` the kubelet calls only ``Allocate``.
    """

    def __init__(
        self,
        interfaces: Interfaces,
        folder: Path,
        ids: Sequence[str],
        *,
        resource: str = "nvidia.com/gpu",
        hooks: Mapping[str, Hook] | None = None,
        answer: Mapping[str, Any] | None = None,
        name: str = "hami.sock",
        asks: bool = True,
    ) -> None:
        self.interfaces, self._folder, self._resource = interfaces, folder, resource
        self._hooks, self._answer = dict(hooks or {}), dict(answer or {})
        self._name, self._ids = name, [*ids]
        self._options = interfaces.plugin.DevicePluginOptions(
            pre_start_required=asks, get_preferred_allocation_available=asks
        )
        self._calls: list[Call] = []
        self._changed = threading.Condition()
        self._stopping = False
        self._server: grpc.Server | None = None

    def __enter__(self) -> "Plugin":
        self.serve()
        self.register()
        return self

    def __exit__(self, *unused: object) -> None:
        self.stop()

    def serve(self) -> None:
        """Listen, without telling the kubelet."""
        self._stopping = False
        socket = self._folder / self._name
        socket.unlink(missing_ok=True)
        self._server = grpc.server(futures.ThreadPoolExecutor(16))
        self.interfaces.plugin_services.add_DevicePluginServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix://{socket}")
        self._server.start()

    def register(self) -> None:
        """Register at the kubelet."""
        messages = self.interfaces.plugin
        with grpc.insecure_channel(f"unix://{self._folder / 'kubelet.sock'}") as channel:
            self.interfaces.plugin_services.RegistrationStub(channel).Register(
                messages.RegisterRequest(
                    version=VERSION,
                    endpoint=self._name,
                    resource_name=self._resource,
                    options=self._options,
                ),
                timeout=30.0,
                wait_for_ready=True,
            )

    def stop(self) -> None:
        """Stop serving, as a plugin that dies."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._server is not None:
            self._server.stop(grace=None).wait(30.0)
            self._server = None

    def calls(self, method: str | None = None) -> list[Call]:
        """The calls of the kubelet so far, in order."""
        with self._changed:
            return [call for call in self._calls if method in (None, call.method)]

    def say(self, method: str, hook: Hook) -> None:
        """Use this hook from now on."""
        self._hooks[method] = hook

    def _note(self, method: str, ids: Sequence[str]) -> None:
        with self._changed:
            self._calls.append(Call(method, tuple(ids), time.monotonic()))
            self._changed.notify_all()

    def _hooked(self, method: str, request: Any, context: Any) -> Any:
        hook = self._hooks.get(method)
        return hook(request, context) if hook else None

    # The service; method names are the interface's.

    def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:
        self._note("GetDevicePluginOptions", [])
        return self._options

    def ListAndWatch(self, request: Any, context: Any) -> Iterator[Any]:
        self._note("ListAndWatch", [])
        context.add_callback(lambda: self._note("ListAndWatch ended", []))
        messages = self.interfaces.plugin
        devices = [messages.Device(ID=id, health="Healthy") for id in self._ids]
        yield messages.ListAndWatchResponse(devices=devices)
        while not self._stopping and context.is_active():
            with self._changed:
                self._changed.wait(0.2)

    def GetPreferredAllocation(self, request: Any, context: Any) -> Any:
        (wanted,) = request.container_requests
        self._note("GetPreferredAllocation", wanted.available_deviceIDs)
        answer = self._hooked("GetPreferredAllocation", request, context)
        return answer or self.interfaces.plugin.PreferredAllocationResponse(
            container_responses=[
                self.interfaces.plugin.ContainerPreferredAllocationResponse(
                    deviceIDs=sorted(wanted.available_deviceIDs)[: wanted.allocation_size]
                )
            ]
        )

    def Allocate(self, request: Any, context: Any) -> Any:
        (wanted,) = request.container_requests
        self._note("Allocate", wanted.devices_ids)
        answer = self._hooked("Allocate", request, context)
        return answer or self.interfaces.plugin.AllocateResponse(
            container_responses=[
                self.interfaces.plugin.ContainerAllocateResponse(
                    **{"envs": {"IDS": ",".join(wanted.devices_ids)}, **self._answer}
                )
            ]
        )

    def PreStartContainer(self, request: Any, context: Any) -> Any:
        self._note("PreStartContainer", request.devices_ids)
        answer = self._hooked("PreStartContainer", request, context)
        return answer or self.interfaces.plugin.PreStartContainerResponse()


#: The type of the fixture `plugin`: `plugin(hooks={...})` returns a registered plugin.
StartPlugin = Callable[..., Plugin]


def listed(interfaces: Interfaces, socket: Path, resource: str = "nvidia.com/gpu") -> Any:
    """pod-resources' List: for each pod and container its device IDs of this resource."""
    with grpc.insecure_channel(f"unix://{socket}") as channel:
        stub = interfaces.resources_services.PodResourcesListerStub(channel)
        answer = stub.List(interfaces.resources.ListPodResourcesRequest(), timeout=10.0)
    return {
        pod.name: {
            container.name: sorted(
                id
                for devices in container.devices
                if devices.resource_name == resource
                for id in devices.device_ids
            )
            for container in pod.containers
        }
        for pod in answer.pod_resources
    }
