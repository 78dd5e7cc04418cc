"""The kubelet's list of active pods and their devices (pod-resources, v1).

A container's devices are listed after its Allocate has returned, and a pod without devices is still
in admission. Ordinary init containers are not listed. The kubelet answers at most 100 calls in a
second.
"""

from pathlib import Path

import grpc

from hami_py.errors import StateError
from hami_py.plugin.api import podresources_pb2 as api
from hami_py.plugin.api import podresources_pb2_grpc as services

_MOST_BYTES = 16 << 20


class PodResources:
    """The list of one kubelet."""

    def __init__(self, socket: Path) -> None:
        options = [("grpc.max_receive_message_length", _MOST_BYTES)]
        channel = grpc.insecure_channel(f"unix://{socket}", options=options)
        self._stub = services.PodResourcesListerStub(channel)  # type: ignore[no-untyped-call]

    def list(self, deadline_s: float) -> list[tuple[str, str]]:
        """The namespaces and names of the pods.

        Raises:
            StateError: the kubelet does not answer in time, or refuses.
        """
        try:
            answer = self._stub.List(api.ListPodResourcesRequest(), timeout=deadline_s)
        except grpc.RpcError as error:
            why = str(error.details() if isinstance(error, grpc.Call) else error)
            raise StateError("the kubelet's pod-resources", why, "try again later") from error
        return [(pod.namespace, pod.name) for pod in answer.pod_resources]
