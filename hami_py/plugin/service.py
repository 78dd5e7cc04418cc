"""The device plugin's service, which the kubelet calls.

For each container with cards the kubelet calls GetPreferredAllocation (sometimes), Allocate, and
before each start PreStartContainer. An error of the first two fails the pod for good, so they have
none. An error of PreStartContainer delays the container: the kubelet calls again within a second,
and then every 11 to 15 s (``tests/cluster/test_findings_kubelet.py``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import grpc

from hami_py.errors import HamiError
from hami_py.plugin.api import deviceplugin_pb2 as api
from hami_py.plugin.api import deviceplugin_pb2_grpc as services
from hami_py.plugin.devices import DeviceList

_log = logging.getLogger(__name__)

OPTIONS = api.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)

_HEALTH = {True: "Healthy", False: "Unhealthy"}

_POLL_S = 0.5
"""How often a stream looks whether the kubelet is still there."""


class NotYet(HamiError):
    """A container cannot start yet: the kubelet tries again."""


class Handlers(Protocol):
    """What the service asks for decisions. All methods may be called from several threads."""

    def prefer(self, available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
        """The device IDs that a container should get, of the available ones."""

    def allocate(self, ids: Sequence[str]) -> api.ContainerAllocateResponse:
        """What the kubelet adds to a container with these devices."""

    def pre_start(self, ids: Sequence[str]) -> None:
        """Prepare the container with these devices, which is about to start.

        Raises:
            HamiError: it has to wait, and the kubelet tries again.
        """


class DevicePlugin(services.DevicePluginServicer):
    """The service. Method names are the interface's.

    Args:
        watched: called with True when the kubelet begins to watch the devices, and with False when
            that ends.
    """

    def __init__(
        self,
        devices: DeviceList,
        handlers: Handlers,
        watched: Callable[[bool], None],
        is_stopping: Callable[[], bool],
    ) -> None:
        self._devices = devices
        self._handlers = handlers
        self._watched = watched
        self._is_stopping = is_stopping

    def GetDevicePluginOptions(
        self, request: api.Empty, context: grpc.ServicerContext
    ) -> api.DevicePluginOptions:
        """The calls that the kubelet must make."""
        return OPTIONS

    def ListAndWatch(
        self, request: api.Empty, context: grpc.ServicerContext
    ) -> Iterator[api.ListAndWatchResponse]:
        """The devices now, and whenever they change.

        Devices have no topology. With it, a kubelet with a topology manager would offer the devices
        of one NUMA node only, and not those of the assigned cards.
        """
        self._watched(True)
        if not context.add_callback(lambda: self._watched(False)):
            self._watched(False)
            return
        version = -1
        while context.is_active() and not self._is_stopping():
            seen, devices = self._devices.wait(version, _POLL_S)
            if seen != version:
                version = seen
                yield api.ListAndWatchResponse(
                    devices=[
                        api.Device(ID=id, health=_HEALTH[healthy])
                        for id, healthy in devices.items()
                    ]
                )

    def GetPreferredAllocation(
        self, request: api.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> api.PreferredAllocationResponse:
        """A hint, which the kubelet may ignore."""
        return api.PreferredAllocationResponse(
            container_responses=[
                api.ContainerPreferredAllocationResponse(deviceIDs=self._preferred(each))
                for each in request.container_requests
            ]
        )

    def _preferred(self, request: api.ContainerPreferredAllocationRequest) -> Sequence[str]:
        """An error would fail the pod; without a preference the kubelet picks itself."""
        try:
            return self._handlers.prefer(
                request.available_deviceIDs, request.must_include_deviceIDs, request.allocation_size
            )
        except Exception:
            _log.exception("GetPreferredAllocation of %d devices", request.allocation_size)
            return ()

    def Allocate(
        self, request: api.AllocateRequest, context: grpc.ServicerContext
    ) -> api.AllocateResponse:
        """Never refuses."""
        return api.AllocateResponse(
            container_responses=[
                self._handlers.allocate(each.devices_ids) for each in request.container_requests
            ]
        )

    def PreStartContainer(
        self, request: api.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> api.PreStartContainerResponse:
        """Prepares the container, or delays it."""
        try:
            self._handlers.pre_start(request.devices_ids)
        except HamiError as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except Exception as error:
            _log.exception("PreStartContainer %s", ", ".join(request.devices_ids))
            context.abort(grpc.StatusCode.INTERNAL, f"hami-py's agent: {error}")
        return api.PreStartContainerResponse()
