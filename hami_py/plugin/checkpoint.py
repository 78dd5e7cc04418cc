"""The kubelet's record of allocated devices: which pod and container has which device IDs.

It is the only place that names the containers: the calls to a device plugin carry no pod, and the
pod-resources API leaves init containers out. The format is internal to the kubelet, but has been
the same since Kubernetes 1.20 (pkg/kubelet/cm/devicemanager/checkpoint).

The kubelet replaces the file as a whole, so a reader never sees a part of it.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import msgspec
from google.protobuf.message import DecodeError

from hami_py.errors import StateError
from hami_py.node.devices import DeviceRecord
from hami_py.node.paths import Paths
from hami_py.plugin.allocation import slot_of
from hami_py.plugin.api import deviceplugin_pb2 as api


class _Entry(msgspec.Struct, frozen=True):
    pod_uid: str = msgspec.field(name="PodUID")
    container: str = msgspec.field(name="ContainerName")
    resource: str = msgspec.field(name="ResourceName")
    ids: dict[str, tuple[str, ...]] | None = msgspec.field(name="DeviceIDs")
    answer: str | None = msgspec.field(name="AllocResp")

    @property
    def all_ids(self) -> frozenset[str]:
        """The device IDs, which the kubelet writes by NUMA node."""
        return frozenset(id for of_a_node in (self.ids or {}).values() for id in of_a_node)


class _Data(msgspec.Struct, frozen=True):
    entries: tuple[_Entry, ...] | None = msgspec.field(name="PodDeviceEntries")
    registered: dict[str, tuple[str, ...] | None] | None = msgspec.field(
        name="RegisteredDevices", default=None
    )


class _Checkpoint(msgspec.Struct, frozen=True):
    data: _Data = msgspec.field(name="Data")


@dataclass(frozen=True)
class KubeletDevices:
    """The device IDs in the kubelet's record.

    Attributes:
        registered: the healthy ones that plugins have registered, by resource. A resource has none
            from a start of the kubelet until its plugin registers again.
        allocated: those of containers, by pod UID and container name, and by resource.
    """

    registered: Mapping[str, tuple[str, ...]]
    allocated: Mapping[tuple[str, str], Mapping[str, tuple[str, ...]]]

    def of(self, pod_uid: str, container: str) -> Mapping[str, tuple[str, ...]]:
        """Those of a container, by resource."""
        return self.allocated.get((pod_uid, container), {})


def read_records(paths: Paths, resource: str) -> list[DeviceRecord]:
    """The records of a resource that this agent, or an earlier one, has answered.

    Raises:
        StateError: the file cannot be read, or has another format.
    """
    found = []
    for entry in _read(paths).entries or ():
        ours = _slot(entry.answer or "") if entry.resource == resource else None
        if ours is not None:
            found.append(DeviceRecord(entry.pod_uid, entry.container, entry.all_ids, *ours))
    return found


def read_devices(paths: Paths) -> KubeletDevices:
    """The devices of all resources and containers.

    Raises:
        StateError: the file cannot be read, or has another format.
    """
    data = _read(paths)
    allocated: dict[tuple[str, str], dict[str, tuple[str, ...]]] = {}
    for entry in data.entries or ():
        by_resource = allocated.setdefault((entry.pod_uid, entry.container), {})
        by_resource[entry.resource] = tuple(sorted(entry.all_ids))
    registered = {resource: ids or () for resource, ids in (data.registered or {}).items()}
    return KubeletDevices(registered, allocated)


def _read(paths: Paths) -> _Data:
    try:
        return msgspec.json.decode(paths.checkpoint.read_bytes(), type=_Checkpoint).data
    except FileNotFoundError:
        return _Data(None)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        fix = "check the kubelet's version and the agent's rights"
        raise StateError(f"the kubelet's record {paths.checkpoint}", str(error), fix) from error


@lru_cache(maxsize=4096)
def _slot(answer: str) -> tuple[str, str] | None:
    """Decodes an answer once: the record has the answers of all containers, whenever one starts."""
    try:
        message = api.ContainerAllocateResponse.FromString(base64.b64decode(answer))
    except (ValueError, DecodeError):
        return None
    return slot_of(message)
