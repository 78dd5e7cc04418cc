"""The kubelet's record of allocated devices: which pod and container has which device IDs.

It is the only place that names the containers: the calls to a device plugin carry no pod, and the
pod-resources API leaves init containers out. The format is internal to the kubelet, but has been
the same since Kubernetes 1.20 (pkg/kubelet/cm/devicemanager/checkpoint).

The kubelet replaces the file as a whole, so a reader never sees a part of it.
"""

import base64
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


class _Data(msgspec.Struct, frozen=True):
    entries: tuple[_Entry, ...] | None = msgspec.field(name="PodDeviceEntries")


class _Checkpoint(msgspec.Struct, frozen=True):
    data: _Data = msgspec.field(name="Data")


def read_records(paths: Paths, resource: str) -> list[DeviceRecord]:
    """The records of a resource that this agent, or an earlier one, has answered.

    Raises:
        StateError: the file cannot be read, or has another format.
    """
    try:
        content = paths.checkpoint.read_bytes()
        entries = msgspec.json.decode(content, type=_Checkpoint).data.entries or ()
    except FileNotFoundError:
        return []
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        fix = "check the kubelet's version and the agent's rights"
        raise StateError(f"the kubelet's record {paths.checkpoint}", str(error), fix) from error
    found = []
    for entry in entries:
        ours = _slot(entry.answer or "") if entry.resource == resource else None
        if ours is not None:
            ids = frozenset(id for of_a_node in (entry.ids or {}).values() for id in of_a_node)
            found.append(DeviceRecord(entry.pod_uid, entry.container, ids, *ours))
    return found


@lru_cache(maxsize=4096)
def _slot(answer: str) -> tuple[str, str] | None:
    """Decodes an answer once: the record has the answers of all containers, whenever one starts."""
    try:
        message = api.ContainerAllocateResponse.FromString(base64.b64decode(answer))
    except (ValueError, DecodeError):
        return None
    return slot_of(message)
